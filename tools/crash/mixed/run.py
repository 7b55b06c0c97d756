"""Mixed clusters through kills and pauses of their nodes, and the migration of a cluster under load."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from tools.cluster import view
from tools.cluster.nodes import ClusterNode
from tools.crash.cluster.faults import START_TIMEOUT_S, kill, pause
from tools.crash.cluster.report import report
from tools.crash.cluster.run import ClusterOutcome, finish, verify
from tools.crash.cluster.world import NotSettled
from tools.crash.mixed import agreement
from tools.crash.mixed.world import (
    ALL_KAFKA,
    KAFKA_QUORUM,
    RUNNEL_QUORUM,
    SHARED_QUORUM,
    Layout,
    MixedWorld,
    kind_of,
    mixed_world,
)
from tools.crash.rounds import Progress

LAYOUTS = (KAFKA_QUORUM, RUNNEL_QUORUM, SHARED_QUORUM)
ROUNDS_PER_KILL = 50
"""So many rounds of a full run are one kill of each node."""
ROUNDS_PER_PAUSE = 100

Fault = Callable[[MixedWorld, ClusterNode], str]


def clusters(folder: Path, rounds: int, seed: int, progress: Progress) -> bool:
    """Each layout through its faults."""
    passed = []
    for layout in LAYOUTS:
        progress(layout.name)
        outcome = _under_load(folder / layout.name.replace(" ", "-"), layout, seed, progress, _faults(rounds))
        passed.append(report(layout.name, outcome))
    return all(passed)


def migration(folder: Path, seed: int, progress: Progress) -> bool:
    """A cluster of Kafka becomes one of Runnel, node by node, and one of Kafka again."""
    return report("migration", _under_load(folder, ALL_KAFKA, seed, progress, _migrate))


def _under_load(
    folder: Path,
    layout: Layout,
    seed: int,
    progress: Progress,
    play: Callable[[MixedWorld, ClusterOutcome], None],
) -> ClusterOutcome:
    began, outcome = time.monotonic(), ClusterOutcome()
    with mixed_world(folder, layout, seed, progress) as world:
        world.start_clients(seed)
        try:
            world.settle()
            play(world, outcome)
            progress("verifying")
            verify(world, lambda: _look(world))
        except (NotSettled, view.Unreachable, RuntimeError, TimeoutError) as failure:
            outcome.violations.append(f"{type(failure).__name__}: {failure}")
        finish(world, outcome)
    outcome.seconds = time.monotonic() - began
    return outcome


def _look(world: MixedWorld) -> Iterable[str]:
    yield from agreement.differences(world)
    yield from agreement.operate(world)
    world.settle()
    yield from agreement.differences(world)


def _faults(rounds: int) -> Callable[[MixedWorld, ClusterOutcome], None]:
    def play(world: MixedWorld, outcome: ClusterOutcome) -> None:
        nodes = list(world.cluster.nodes.values())
        planned: list[tuple[str, Fault, ClusterNode]] = []
        for node in nodes:
            planned += [("kill -9", kill, node)] * max(1, rounds // ROUNDS_PER_KILL)
            planned += [("pause", pause, node)] * (rounds // ROUNDS_PER_PAUSE)
        world.rng.shuffle(planned)
        for number, (name, fault, node) in enumerate(planned, 1):
            _round(world, outcome, f"{name} of {kind_of(node)}", fault, node)
            world.progress(f"round {number}/{len(planned)}")
            if world.clients.violations:
                break

    return play


def _round(world: MixedWorld, outcome: ClusterOutcome, name: str, change: Fault, node: ClusterNode) -> None:
    """One change, from a whole cluster to a whole cluster."""
    clients = world.clients
    if not clients.wait_for_progress(time.monotonic()):
        return
    time.sleep(world.rng.uniform(0.0, 0.5))
    clients.meter.begin()
    detail = change(world, node)
    clients.wait_for_progress(time.monotonic())
    settled_s = world.settle()
    longest_s = clients.meter.longest_s()
    outcome.rounds[name] += 1
    outcome.gaps.add(name, "", longest_s)
    world.progress(
        f"{name}, node {node.number} {detail}: gap {longest_s:.2f} s, in sync after {settled_s:.1f} s; "
        f"{clients.ledger.acknowledged_count} acknowledged, {clients.reader.records_read} read, "
        f"{clients.chain.output_reader.records_read} copied in transactions"
    )


def _migrate(world: MixedWorld, outcome: ClusterOutcome) -> None:
    """Each node is stopped and started as one of the other kind, the active controller last: MIGRATION.md."""
    first, *others = _leader_last(world)
    for number in (first, first, first, *others):
        # The first one also goes back, as an operator does who is not content.
        _exchange(world, outcome, number)
    for number in _leader_last(world):
        _exchange(world, outcome, number)


def _leader_last(world: MixedWorld) -> list[int]:
    leader, _ = view.controller(world.cluster.bootstrap)
    return sorted(world.cluster.nodes, key=lambda number: number == leader)


def _exchange(world: MixedWorld, outcome: ClusterOutcome, number: int) -> None:
    node = world.cluster.nodes[number]
    target = "Runnel" if kind_of(node) == "Kafka" else "Kafka"
    _round(world, outcome, f"{kind_of(node)} to {target}", _exchanged, node)


def _exchanged(world: MixedWorld, node: ClusterNode) -> str:
    code = node.stop(START_TIMEOUT_S)
    # A JVM reports the signal that ended it.
    if code not in (0, 143):
        world.clients.ledger.fail(f"a clean stop of node {node.number} ended with {code}")
    other = world.exchange(node.number)
    other.start(START_TIMEOUT_S)
    return f"answers after {other.started_in_s:.1f} s"
