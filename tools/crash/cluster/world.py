"""A running cluster with what faults need: its network, the disks and clocks of its nodes, its clients."""

import random
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.cluster import view
from tools.cluster.network import CLIENTS, NAMESPACES, Network, entered, network
from tools.cluster.nodes import (
    CONTROLLER_PORT,
    THREE_REPLICAS,
    Blueprint,
    ClusterNode,
    KafkaNode,
    NodeCluster,
    Place,
    RunnelNode,
    new_cluster_id,
)
from tools.cluster.security import NO_SECURITY, MutualTls
from tools.crash.chain.run import SETTINGS as CHAIN_SETTINGS
from tools.crash.cluster.clients import Clients
from tools.crash.cluster.clocks import ShiftedClock
from tools.crash.rounds import Progress
from tools.crash.volumes import Ext4, ext4

VOTERS = (1, 2, 3)
VOLUME_BYTES = 4 * 1024**3
SETTLE_TIMEOUT_S = 120.0
CLOCK_SETTINGS = {"log.message.timestamp.after.max.ms": str(2**63 - 1), "log.retention.ms": "-1"}
"""A clock that jumps by days must not refuse records from the future, nor expire all of them."""
SETTINGS = {**CHAIN_SETTINGS, **THREE_REPLICAS, **CLOCK_SETTINGS}
"""Replication, and group timeouts as short as the clients ask for; all else has the broker's defaults."""


class NotSettled(Exception):
    """The replicas were not all in sync again in time."""


@dataclass(slots=True, kw_only=True)
class LoadedCluster:
    """A cluster and its clients."""

    cluster: NodeCluster
    folder: Path
    rng: random.Random
    progress: Progress
    sender_settings: Mapping[str, Any] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)
    _clients: Clients | None = None

    @property
    def clients(self) -> Clients:
        assert self._clients is not None
        return self._clients

    def start_clients(self, seed: int) -> None:
        self._clients = Clients(
            self.cluster, self.folder / "clients", seed, self.progress, self.sender_settings
        )
        self._stack.callback(self._clients.close)
        self._clients.start()

    def settle(self, timeout_s: float = SETTLE_TIMEOUT_S, workers: Iterable[int] = ()) -> float:
        """Wait until every running node sees all of them, and all replicas in sync; the seconds it took.

        `workers` are the ids of brokers that a node runs besides itself.
        """
        began = time.monotonic()
        while True:
            unfinished = self._unfinished(workers)
            if not unfinished:
                return time.monotonic() - began
            if time.monotonic() - began > timeout_s:
                raise NotSettled(f"not whole after {timeout_s:.0f} s: {unfinished}")
            time.sleep(0.1)

    def _unfinished(self, workers: Iterable[int]) -> str:
        running = [node for node in self.cluster.running if node.is_broker]
        brokers = [*(node.number for node in running), *workers]
        for node in running:
            try:
                if unfinished := view.state(node.bootstrap, self.cluster.security).unfinished(brokers):
                    return f"node {node.number}: {unfinished}"
            except view.Unreachable as unreachable:
                return f"node {node.number}: {unreachable}"
        return "" if brokers else "no node is running"

    def logs(self, characters: int = 3000) -> str:
        """The ends of the nodes' logs."""
        return "\n".join(
            f"--- node {node.number}\n{node.log_tail(characters)}" for node in self.cluster.nodes.values()
        )

    def close(self) -> None:
        self._stack.close()


@dataclass(slots=True, kw_only=True)
class World(LoadedCluster):
    """A cluster and its surroundings."""

    network: Network
    blueprint: Blueprint
    is_kafka: bool
    volumes: dict[int, Ext4] = field(default_factory=dict)
    clocks: dict[int, ShiftedClock] = field(default_factory=dict)

    def add_node(self, number: int) -> ClusterNode:
        """A node with a namespace, a volume and a clock of its own; it is not started."""
        if number not in self.network.members:
            self.network.add(number)
        folder = self.folder / f"node-{number}"
        volume = self._stack.enter_context(ext4(folder, VOLUME_BYTES))
        clock = ShiftedClock(folder / "clock")
        place = Place(
            number,
            self.network.address(number),
            folder,
            volume.mountpoint / "data",
            self.network.inside(number),
        )
        place.data.mkdir()
        node = (KafkaNode if self.is_kafka else RunnelNode)(place, self.blueprint)
        node.environment = clock.environment
        self._stack.callback(node.kill)
        self.cluster.nodes[number], self.volumes[number], self.clocks[number] = node, volume, clock
        return node


@contextmanager
def new_world(
    folder: Path,
    seed: int,
    progress: Progress,
    settings: Mapping[str, str] = SETTINGS,
    is_kafka: bool = False,
    is_secured: bool = False,
) -> Iterator[World]:
    """A new cluster without clients, started; this process is in the clients' namespace meanwhile."""
    with network(VOTERS) as joined, entered(NAMESPACES / joined.namespace(CLIENTS)):
        controllers = {number: f"{joined.address(number)}:{CONTROLLER_PORT}" for number in VOTERS}
        cluster_id = new_cluster_id() if is_kafka else ""
        security = MutualTls(folder / "security") if is_secured else NO_SECURITY
        blueprint = Blueprint(controllers, settings, cluster_id, security=security)
        world = World(
            cluster=NodeCluster({}, security),
            network=joined,
            folder=folder,
            blueprint=blueprint,
            is_kafka=is_kafka,
            rng=random.Random(seed),
            progress=progress,
        )
        try:
            for number in VOTERS:
                world.add_node(number)
            world.cluster.start()
            yield world
        finally:
            world.close()
