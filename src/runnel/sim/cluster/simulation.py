"""One simulation of a cluster: start, clients, faults, recovery, and the final checks."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any

from runnel.controller.values import PartitionState
from runnel.sim.clients import find_coordinators
from runnel.sim.cluster.client_host import ClientHost
from runnel.sim.cluster.cluster import Cluster
from runnel.sim.cluster.faults import (
    DAMAGE,
    DESTRUCTIVE,
    KINDS,
    LOSSY,
    POWER_CUTS,
    RESTARTS,
    VOTER_CHANGES,
    Faults,
    choose_kinds,
)
from runnel.sim.cluster.invariants import Invariants
from runnel.sim.cluster.node import CONTROLLER_LISTENER, CONTROLLER_PORT
from runnel.sim.cluster.operator import Operator
from runnel.sim.cluster.targets import Targets
from runnel.sim.cluster.voters import format_voters
from runnel.sim.history import Anomaly

START_SECONDS_MAX = 30.0
STAGGER_SECONDS_MAX = 1.0
SETTLE_SECONDS_MAX = 60.0
"""How long clients may need to make progress once all faults have ended."""

SNAPSHOT_BYTES = 20_971_520
"""The default: more than a simulation writes."""
VOTERS = 3
"""The voters at the start."""

SETTINGS = {
    "num.partitions": "3",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "log.index.interval.bytes": "512",
    "log.segment.delete.delay.ms": "100",
    "controller.quorum.fetch.snapshot.max.bytes": "500",
}


@dataclass(frozen=True, slots=True)
class Shape:
    """The parts of a simulation, drawn from its seed."""

    nodes: int
    policy: str
    kinds: tuple[str, ...]
    seconds: float
    is_dynamic: bool = False
    """Are voters changed? All nodes are controllers then."""
    joins: bool = False
    """Do controllers add themselves to the voters?"""
    snapshot_bytes: int = SNAPSHOT_BYTES
    """Bytes of metadata between two snapshots."""

    @property
    def voters_min(self) -> int:
        """How many voters remain: one whose data is destroyed must not be needed."""
        return VOTERS if not {*DESTRUCTIVE}.isdisjoint(self.kinds) else 1


def draw_shape(random: Random) -> Shape:
    """The number of nodes, the flush policy, the kind of quorum, and the kinds of faults."""
    policy = random.choice(("commit", "never"))
    is_dynamic = random.random() < 0.4
    kinds = [kind for kind in KINDS if kind not in (*DESTRUCTIVE, LOSSY)]
    if not is_dynamic:
        kinds = [kind for kind in kinds if kind not in VOTER_CHANGES]
    draw, rare = random.random(), ""
    if policy == "never":
        # Without a sync before the acknowledgement, a power failure may lose acknowledged records.
        kinds = [kind for kind in kinds if kind not in POWER_CUTS]
        if draw < 0.2:
            # A node that was killed is not known to have kept them: one that lost power must be the only one.
            rare, kinds = LOSSY, [kind for kind in kinds if kind not in RESTARTS]
    if 0.2 <= draw < 0.4:
        rare = random.choice(DESTRUCTIVE)
    chosen = ["clock jump"] if draw > 0.97 else choose_kinds(random, kinds, rare)
    return Shape(
        random.choice((3, 4, 5) if is_dynamic else (3, 3, 3, 5)),
        policy,
        tuple(chosen),
        6 + 8 * random.random(),
        is_dynamic,
        joins=is_dynamic and random.random() < 0.3,
        snapshot_bytes=random.choice((1_000, 4_000, SNAPSHOT_BYTES)),
    )


class ClusterSimulation:
    """A cluster with its clients, faults and invariants."""

    def __init__(self, seed: str, shape: Shape, show: Callable[[str], None] | None = None) -> None:
        self.shape = shape
        self.cluster = Cluster(seed, show)
        self.scheduler = self.cluster.scheduler
        self.random = Random(f"{seed} simulation")
        self._add_nodes()
        self.clients = ClientHost(self.cluster)
        self.invariants = Invariants(self.cluster)
        self._targets = targets = Targets(self.cluster, Random(f"{seed} targets"))
        self.faults = Faults(self.cluster, Random(f"{seed} faults"), shape.kinds, targets)
        self.faults.on_disk_replaced = self.invariants.disk_replaced

    @property
    def brokers(self) -> list[int]:
        """The ids of all brokers."""
        return [node.id for node in self.cluster.nodes.values() if node.is_broker]

    def start(self) -> None:
        """Start all nodes one after the other, and wait until they serve; clients are there before."""
        for node in self.cluster.nodes.values():
            self.clients.loop.call_later(self.random.random() * STAGGER_SECONDS_MAX, node.start)
        found = self.clients.run(find_coordinators(self.clients))
        self.wait(
            lambda: found.done() and not self._not_serving(),
            START_SECONDS_MAX,
            lambda: f"{self._not_serving()} do not start",
        )

    def run_faults(self) -> None:
        """Let faults happen, then end them; all nodes run afterwards."""
        self.faults.start(self.shape.seconds)
        elections = self.invariants.quorum.elections
        self.scheduler.run_for(self.shape.seconds)
        self.cluster.trace.add("faults", "end")
        self.faults.heal_all()
        if DAMAGE in self.shape.kinds:
            Operator(self.cluster, self._targets).start()
        elections = self.invariants.quorum.elections - elections
        fencings = self.invariants.partitions.fencings
        # A leader that is removed from the voters resigns.
        is_calm = set(self.shape.kinds) <= {"clock jump"} and not self.shape.is_dynamic
        if is_calm and (elections or fencings):
            raise Anomaly(f"clocks jumped: {elections} controllers were elected, {fencings} brokers fenced")

    def wait(self, is_done: Callable[[], bool], seconds: float, complaint: Callable[[], str]) -> None:
        """Run until something has happened."""
        if not self.scheduler.run_until(is_done, self.scheduler.now + seconds):
            raise Anomaly(f"{complaint()} ({seconds:g} s)")

    def check(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a check, or a preparation, of a client."""
        task = self.clients.run(coroutine)
        self.wait(task.done, SETTLE_SECONDS_MAX, lambda: f"{task.get_coro()} is stuck")

    def check_acknowledged(self, topic: str, partition: int, end_offset: int) -> None:
        """A client received an acknowledgement of all replicas."""
        topic_id = self.invariants.topic_ids[topic]
        self.invariants.partitions.check_acknowledged(topic_id, partition, end_offset)

    def check_read(self, topic: str, partition: int, offset: int) -> None:
        """A client has read a record."""
        topic_id = self.invariants.topic_ids[topic]
        self.invariants.partitions.check_read(topic_id, partition, offset)

    def wait_until_in_sync(self) -> None:
        """All nodes serve, and all replicas are in sync."""
        self.wait(
            lambda: not self._not_serving() and not self._not_in_sync(),
            SETTLE_SECONDS_MAX,
            lambda: f"not serving: {self._not_serving()}, not in sync: {self._not_in_sync()}",
        )

    def _not_serving(self) -> list[str]:
        return [node.host for node in self.cluster.nodes.values() if not node.is_serving]

    def _not_in_sync(self) -> dict[str, PartitionState]:
        """The partitions whose replicas are not all in sync, according to any node."""
        return {
            f"{topic.name}-{index}": state
            for node in self.cluster.nodes.values()
            if node.process is not None and node.process.has_quorum
            for topic in node.process.broker.metadata.image.topics.values()
            for index, state in enumerate(topic.partitions)
            if len(state.isr) < len(state.replicas) or state.adding or state.removing
        }

    def _add_nodes(self) -> None:
        shape, voters = self.shape, range(1, VOTERS + 1)
        for node_id in range(1, shape.nodes + 1):
            is_controller = shape.is_dynamic or node_id in voters
            settings = {
                **SETTINGS,
                **self._quorum_settings(),
                "log.flush.policy": shape.policy,
                "metadata.log.max.record.bytes.between.snapshots": str(shape.snapshot_bytes),
                "node.id": str(node_id),
                "process.roles": "broker,controller" if is_controller else "broker",
                "controller.listener.names": CONTROLLER_LISTENER,
            }
            self.cluster.add_node(node_id, settings)
        if shape.is_dynamic:
            format_voters((self.cluster.nodes[voter] for voter in voters), self.random)

    def _quorum_settings(self) -> dict[str, str]:
        voters = range(1, VOTERS + 1)
        if not self.shape.is_dynamic:
            addresses = ",".join(f"{voter}@n{voter}:{CONTROLLER_PORT}" for voter in voters)
            return {"controller.quorum.voters": addresses}
        return {
            "controller.quorum.bootstrap.servers": ",".join(
                f"n{voter}:{CONTROLLER_PORT}" for voter in voters
            ),
            "controller.quorum.auto.join.enable": str(self.shape.joins).lower(),
        }
