"""What operators do to a cluster under load: restart, grow, shrink; no send may fail beyond its retries."""

import shutil
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from confluent_kafka import KafkaException

from tools.cluster import changes, view
from tools.cluster.nodes import RUNNEL, ClusterNode, RunnelNode
from tools.cluster.security import ADMIN
from tools.crash.cluster.acls import COMMITTER
from tools.crash.cluster.faults import START_TIMEOUT_S, kill_all
from tools.crash.cluster.offsets import Committed, Committer
from tools.crash.cluster.run import ClusterOutcome, finish, verify
from tools.crash.cluster.world import SETTINGS, NotSettled, World, new_world
from tools.crash.rounds import Progress

ROUNDS = 3
OFFSETS = 100_000
MORE_NODES = (4, 5)
MOVE_TIMEOUT_S = 180.0
AFTER_S = 1.0
"""How long a gap is watched for after a change."""


class Operations:
    """The operations of one cluster; each reports the longest gap between acknowledged sends."""

    def __init__(self, world: World, outcome: ClusterOutcome) -> None:
        self.world = world
        self.outcome = outcome

    def measure(self, name: str, operation: Callable[[], str]) -> None:
        """One operation under load."""
        clients = self.world.clients
        clients.wait_for_progress(time.monotonic())
        clients.meter.begin()
        detail = operation()
        time.sleep(AFTER_S)
        clients.wait_for_progress(time.monotonic())
        self._report(name, detail, clients.meter.longest_s())

    def _report(self, name: str, detail: str, longest_s: float) -> None:
        self.outcome.rounds[name] += 1
        self.outcome.gaps.add(name, "", longest_s)
        self.world.progress(f"{name} {detail}".rstrip() + f": gap {longest_s:.2f} s")

    def rolling_restart(self) -> None:
        """Each node is stopped and started, one after the other."""
        for node in list(self.world.cluster.nodes.values()):
            self.restart(node)

    def restart(self, node: ClusterNode) -> None:
        """Stop and start one node."""
        self.measure("controlled stop", partial(self._stop, node))
        self.measure("return of a node", partial(self._start, node))

    def _stop(self, node: ClusterNode) -> str:
        began = time.monotonic()
        code = node.stop(START_TIMEOUT_S)
        if code not in (0, 143):
            self.world.clients.ledger.fail(f"a clean stop of node {node.number} ended with {code}")
        return f"of node {node.number}, ended after {time.monotonic() - began:.1f} s"

    def _start(self, node: ClusterNode) -> str:
        node.start(START_TIMEOUT_S)
        return f"{node.number}, in sync after {node.started_in_s + self.world.settle():.1f} s"

    def all_killed(self) -> None:
        node = next(iter(self.world.cluster.nodes.values()))
        self.measure("all killed and restarted", lambda: kill_all(self.world, node))
        self.world.settle()

    def grow_and_shrink(self) -> None:
        """Two brokers join and get replicas, then all replicas leave them and they are removed."""
        world = self.world
        first = list(world.cluster.nodes)
        self.measure(f"{len(first)} to {len(first) + len(MORE_NODES)} nodes", self._grow)
        self.measure("move replicas to all nodes", lambda: self._move([*first, *MORE_NODES]))
        self.measure("drain the new nodes", lambda: self._move(first))
        self.measure("remove them", self._shrink)

    def _grow(self) -> str:
        nodes = [self.world.add_node(number) for number in MORE_NODES]
        return (
            f"answer after {self.world.cluster.start(nodes):.1f} s, whole after {self.world.settle():.1f} s"
        )

    def _move(self, brokers: list[int]) -> str:
        bootstrap, began = self.world.cluster.bootstrap, time.monotonic()
        assignment = changes.spread(view.state(bootstrap), brokers)
        changes.reassign(bootstrap, assignment)
        while (left := changes.moving(bootstrap)) > 0:
            if time.monotonic() - began > MOVE_TIMEOUT_S:
                raise NotSettled(f"{left} partitions are still being moved after {MOVE_TIMEOUT_S:.0f} s")
            time.sleep(0.2)
        self.world.settle()
        for partition, state in view.state(bootstrap).partitions.items():
            if sorted(state.replicas) != sorted(assignment.get(partition, state.replicas)):
                self.world.clients.ledger.fail(f"{partition} is on {state.replicas} after its move")
        return f"{len(assignment)} partitions in {time.monotonic() - began:.1f} s"

    def _shrink(self) -> str:
        for number in MORE_NODES:
            node = self.world.cluster.nodes.pop(number)
            self._stop(node)
            changes.unregister(self.world.cluster.bootstrap, number)
        return ""

    def add_worker(self) -> None:
        """A node gets a second worker, which takes over replicas; then it is drained and removed."""
        number, node = list(self.world.cluster.nodes.items())[-1]
        assert isinstance(node, RunnelNode)
        worker = number + 1
        self.measure("1 to 2 workers", lambda: self._start_workers(node, 2, [worker]))
        self.measure("rebalance onto the worker", lambda: self._administer("rebalance"))
        if not self._replicas_of(worker):
            self.world.clients.ledger.fail(f"worker {worker} has no replicas after the rebalance")
        self.measure("drain the worker", lambda: self._administer("drain", str(worker)))
        if left := self._replicas_of(worker):
            self.world.clients.ledger.fail(f"worker {worker} still has {left} replicas")
        self.measure("2 to 1 workers", lambda: self._end_worker(node, worker))

    def _start_workers(self, node: RunnelNode, count: int, others: list[int]) -> str:
        stopped = self._stop(node)
        node.workers = count
        node.start(START_TIMEOUT_S)
        whole_s = node.started_in_s + self.world.settle(workers=others)
        return f"{stopped}, in sync after {whole_s:.1f} s"

    def _end_worker(self, node: RunnelNode, worker: int) -> str:
        detail = self._stop(node)
        shutil.rmtree(node.worker_data(2))
        node.workers = 1
        node.start(START_TIMEOUT_S)
        self.world.settle()
        self._administer("drain", str(worker), "--unregister")
        return detail

    def _administer(self, *arguments: str) -> str:
        """`runnel cluster …`, as an operator runs it."""
        command = [RUNNEL, "cluster", *arguments, "--yes", "--bootstrap-server", self.world.cluster.bootstrap]
        began = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, timeout=MOVE_TIMEOUT_S, check=False)
        if done.returncode:
            raise RuntimeError(f"runnel cluster {' '.join(arguments)}: {done.stderr.strip()}")
        return f"in {time.monotonic() - began:.1f} s"

    def _replicas_of(self, broker: int) -> int:
        partitions = view.state(self.world.cluster.bootstrap).partitions.values()
        return sum(broker in state.replicas for state in partitions)

    def move_coordinator(self, offsets: int) -> None:
        """kill -9 of a coordinator with many offsets: the gap is that of commits."""
        bootstrap, security = self.world.cluster.bootstrap, self.world.cluster.security
        committed = Committed(bootstrap, offsets, security.client(ADMIN))
        committed.commit()
        self.world.settle()
        committer = Committer(bootstrap, committed.groups.pop(), security.client(COMMITTER))
        committer.start()
        try:
            coordinator = view.group_coordinator(bootstrap, committed.groups[0], security)
            node = self.world.cluster.nodes[coordinator]
            if not committer.wait_for_commit():
                self.world.clients.ledger.fail("stuck: no commit succeeded before the coordinator was moved")
            committer.meter.begin()
            node.kill()
            if not committer.wait_for_commit():
                self.world.clients.ledger.fail("stuck: no commit succeeded after the coordinator was moved")
            self._report("coordinator moved", f"with {committed.count} offsets", committer.meter.longest_s())
        finally:
            committer.end()
        for violation in committed.verify():
            self.world.clients.ledger.fail(violation)
        node.start(START_TIMEOUT_S)
        self.world.settle()


def operations(
    folder: Path, share: float, seed: int, progress: Progress, is_kafka: bool = False
) -> ClusterOutcome:
    """All operations in one cluster under load; `share` scales their number."""

    def operate(running: Operations) -> None:
        hand_over(running, share)
        running.grow_and_shrink()
        if not is_kafka:
            running.add_worker()

    return under_load(folder, seed, progress, is_kafka, operate)


def hand_overs(
    folder: Path,
    share: float,
    seed: int,
    progress: Progress,
    is_kafka: bool = False,
    is_secured: bool = False,
) -> ClusterOutcome:
    """Only what moves leaders and coordinators."""
    return under_load(folder, seed, progress, is_kafka, lambda running: hand_over(running, share), is_secured)


def hand_over(running: Operations, share: float) -> None:
    """Nodes are stopped, killed all at once, and a coordinator with many offsets is killed."""
    for _ in range(max(1, round(ROUNDS * share))):
        running.rolling_restart()
        running.all_killed()
    running.move_coordinator(round(OFFSETS * share))


def under_load(
    folder: Path,
    seed: int,
    progress: Progress,
    is_kafka: bool,
    operate: Callable[[Operations], None],
    is_secured: bool = False,
) -> ClusterOutcome:
    """A new cluster with clients while it is operated, and its verification."""
    began, outcome = time.monotonic(), ClusterOutcome()
    with new_world(folder, seed, progress, SETTINGS, is_kafka, is_secured) as world:
        world.start_clients(seed)
        try:
            world.settle()
            operate(Operations(world, outcome))
            progress("verifying")
            verify(world)
        except (NotSettled, view.Unreachable, KafkaException, RuntimeError, TimeoutError) as failure:
            outcome.violations.append(f"{type(failure).__name__}: {failure}")
        finish(world, outcome)
    outcome.seconds = time.monotonic() - began
    return outcome
