"""The machine on which the clients of a simulation run."""

import asyncio
from collections.abc import Coroutine
from functools import partial
from random import Random
from typing import Any

from runnel.sim.clients import SimClient
from runnel.sim.cluster.cluster import Cluster
from runnel.sim.cluster.connections import Address, ClusterConnection, NodeConnection, Place
from runnel.sim.cluster.node import CLIENT_PORT, NodeClock


class ClientHost:
    """Clients share a host, a clock and the knowledge of all nodes; each has its own connections."""

    pause_seconds = 0.1

    def __init__(self, cluster: Cluster, name: str = "client") -> None:
        self.name = name
        self.random = Random(f"{cluster.seed} {name}")
        self.clock = NodeClock(cluster, boot_ms=0)
        self.loop = cluster.scheduler.process(name)
        self._cluster = cluster
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._epochs: dict[asyncio.Task[Any] | None, dict[Place, int]] = {}
        """Client → the leader epochs that it knows."""
        cluster.network.host(name)

    async def connect(self, *, is_classic: bool = False) -> ClusterConnection:
        """Connections to all nodes; a classic client uses transactions as before KIP-890."""
        bootstrap = [(node.host, CLIENT_PORT) for node in self._cluster.nodes.values() if node.is_broker]
        # A client keeps its metadata when it connects again.
        epochs = self._epochs.setdefault(asyncio.current_task(), {})
        return ClusterConnection(
            partial(self.connect_to, is_classic=is_classic), bootstrap, self.random, epochs
        )

    async def connect_to(self, address: Address, *, is_classic: bool = False) -> NodeConnection:
        """A connection to one node."""
        connection = NodeConnection(self._cluster.network, self.loop, self.name)
        return await connection.open(address, is_classic=is_classic)

    def run_client(self, client: SimClient) -> None:
        """Run a client until `stop`; what it raises ends the simulation."""
        self.run(client.run(self))

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Run a coroutine on this host; what it raises ends the simulation."""
        task = self.loop.create_task(coroutine)
        self._tasks[task] = None
        task.add_done_callback(self._done)
        return task

    def stop(self) -> None:
        """End all clients."""
        for task in list(self._tasks):
            task.cancel()

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._cluster.scheduler.fail(failure)
