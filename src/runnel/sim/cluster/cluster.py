"""A simulated cluster: its nodes, their network, the scheduler of them all, and the trace."""

import gc
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from runnel.sim.cluster.late_markers import has_marker_of_older_client
from runnel.sim.cluster.network import Network
from runnel.sim.cluster.node import Process, SimNode, running_loop
from runnel.sim.cluster.scheduler import Scheduler
from runnel.sim.cluster.trace import Reports, Trace


class Cluster:
    """Several nodes. To be used within `running`."""

    def __init__(self, seed: str, show: Callable[[str], None] | None = None) -> None:
        self.seed = seed
        self.random = Random(f"{seed} cluster")
        self.scheduler = Scheduler()
        self.trace = Trace(self.scheduler, show)
        self.network = Network(self.scheduler, Random(f"{seed} network"), self.trace)
        self.network.is_never_late = has_marker_of_older_client
        self.nodes: dict[int, SimNode] = {}
        self.on_process_end: Callable[[SimNode, Process], None] = lambda node, process: None
        self._is_over = False
        self._ended: list[Process] = []
        """Processes that were killed: their objects are not destroyed before the simulation ends."""

    def add_node(self, node_id: int, settings: dict[str, str]) -> SimNode:
        """Add a machine; nothing runs on it yet."""
        self.nodes[node_id] = node = SimNode(self, node_id, settings)
        self.network.host(node.host)
        return node

    def running_nodes(self) -> list[SimNode]:
        """The nodes with a process, paused or not."""
        return [node for node in self.nodes.values() if node.is_running]

    def process_ended(self, node: SimNode, process: Process) -> None:
        """A process has ended, in whatever way."""
        self._ended.append(process)
        self.on_process_end(node, process)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Collect the warnings of the brokers; afterwards, discard all processes."""
        logger = logging.getLogger("runnel")
        reports = Reports(self.trace, self.scheduler, self._actor)
        logger.addHandler(reports)
        propagates, logger.propagate = logger.propagate, False
        # Collected at arbitrary times, garbage would make a run depend on those before it.
        gc.disable()
        try:
            yield
        finally:
            self._is_over = True
            self._discard()
            logger.removeHandler(reports)
            logger.propagate = propagates
            gc.enable()

    def _actor(self) -> str:
        loop = running_loop()
        if self._is_over or (loop is not None and loop.is_dead):
            return ""
        return "sim" if loop is None else loop.name

    def _discard(self) -> None:
        """End all processes; nothing that their coroutines do in the end reaches a disk."""
        for node in self.running_nodes():
            assert node.process is not None
            node.process.loop.kill()
            node.files.power_failure_at = 0
        report, sys.unraisablehook = sys.unraisablehook, _ignore
        try:
            self.scheduler.discard()
            self._ended.clear()
            gc.collect()
        finally:
            sys.unraisablehook = report


def _ignore(unraisable: Any) -> None:
    """What a coroutine raises, or never began, concerns only its dead process."""
