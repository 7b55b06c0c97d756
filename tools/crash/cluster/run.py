"""Rounds of faults in a cluster under load, and the verification at their end."""

import gc
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path

from tools.cluster import view
from tools.crash.cluster import clocks, disks
from tools.crash.cluster.faults import KINDS, POWER_CUT, Kind, find_target
from tools.crash.cluster.gaps import Gaps
from tools.crash.cluster.replicas import compare
from tools.crash.cluster.world import SETTINGS, LoadedCluster, NotSettled, World, new_world
from tools.crash.rounds import Progress

ROUNDS = 200
"""Of a full run, over all kinds."""
COMMIT = {False: {"log.flush.policy": "commit"}, True: {"log.flush.interval.messages": "1"}}
"""What makes each broker sync before it acknowledges, by whether it is Kafka."""


@dataclass(slots=True)
class ClusterOutcome:
    """The result of the rounds of one cluster."""

    rounds: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    read: int = 0
    outputs: int = 0
    attempts: int = 0
    gaps: Gaps = field(default_factory=Gaps)
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Round:
    """One fault, and the role of its target."""

    kind: Kind
    target: str


def scaled(count: int, rounds: int) -> int:
    """The share of a kind in a run of this many rounds; at least one."""
    return max(1, round(count * rounds / ROUNDS))


def plan(kinds: list[Kind], rounds: int, seed: int) -> list[Round]:
    """The faults of a run, in an order that depends on the seed."""
    planned = [
        Round(kind, target)
        for kind in kinds
        for target in islice(cycle(kind.targets), scaled(kind.rounds, rounds))
    ]
    random.Random(seed).shuffle(planned)
    return planned


def possible(progress: Progress) -> Iterator[Kind]:
    """The kinds that this machine can inject; others are reported."""
    missing = {"slow disk": disks.slow_disks_missing(), "clock jump": clocks.missing()}
    for kind in KINDS:
        reason = missing.get(kind.name)
        if reason is None:
            yield kind
        else:
            progress(f"{kind.name} SKIPPED: {reason}")


def faults(
    folder: Path, rounds: int, seed: int, progress: Progress, is_kafka: bool, is_secured: bool
) -> ClusterOutcome:
    """All kinds but power cuts, with the broker's default durability."""
    planned = plan(list(possible(progress)), rounds, seed)
    return run_rounds(folder, planned, seed, progress, {}, is_kafka, is_secured)


def power_cuts(
    folder: Path, rounds: int, seed: int, progress: Progress, is_kafka: bool, is_secured: bool
) -> ClusterOutcome:
    """Power cuts of all nodes, each of which syncs before it acknowledges."""
    planned = plan([POWER_CUT], rounds, seed)
    return run_rounds(folder, planned, seed, progress, COMMIT[is_kafka], is_kafka, is_secured)


def run_rounds(
    folder: Path,
    planned: list[Round],
    seed: int,
    progress: Progress,
    settings: Mapping[str, str],
    is_kafka: bool,
    is_secured: bool,
) -> ClusterOutcome:
    """A new cluster through all rounds; the first violation ends it."""
    began, outcome = time.monotonic(), ClusterOutcome()
    # The ledger grows to millions of objects that stay: collections of them would pause the clients.
    gc.disable()
    with new_world(folder, seed, progress, {**SETTINGS, **settings}, is_kafka, is_secured) as world:
        world.start_clients(seed)
        try:
            world.settle()
            for number, chosen in enumerate(planned, 1):
                run_round(world, chosen, outcome)
                report(world, outcome, f"round {number}/{len(planned)}")
                if world.clients.violations:
                    break
            else:
                progress("no more faults: verifying")
                verify(world)
        except (NotSettled, view.Unreachable, RuntimeError, TimeoutError) as failure:
            outcome.violations.append(f"{type(failure).__name__}: {failure}")
        finish(world, outcome)
    gc.enable()
    outcome.seconds = time.monotonic() - began
    return outcome


def finish(world: LoadedCluster, outcome: ClusterOutcome) -> None:
    """What the clients counted and found; with violations, also what the nodes reported."""
    clients = world.clients
    outcome.violations += clients.violations
    outcome.acknowledged = clients.ledger.acknowledged_count
    outcome.read = clients.reader.records_read
    outcome.outputs = clients.chain.outcome.outputs
    outcome.attempts = clients.chain.outcome.attempts
    if outcome.violations:
        world.progress(world.logs())


def run_round(world: World, chosen: Round, outcome: ClusterOutcome) -> None:
    """One fault, from a whole cluster to a whole cluster."""
    clients = world.clients
    if not clients.wait_for_progress(time.monotonic()):
        return
    time.sleep(world.rng.uniform(0.0, 0.5))
    node = find_target(world, chosen.target)
    clients.meter.begin()
    began = time.monotonic()
    detail = chosen.kind.inject(world, node)
    injected_s = time.monotonic() - began
    clients.wait_for_progress(time.monotonic())
    settled_s = world.settle()
    longest_s = clients.meter.longest_s()
    outcome.rounds[chosen.kind.name] += 1
    outcome.gaps.add(chosen.kind.name, chosen.target, longest_s)
    world.progress(
        f"{chosen.kind.name} of {chosen.target} (node {node.number}) {detail}: gap {longest_s:.2f} s, "
        f"fault {injected_s:.1f} s, in sync after {settled_s:.1f} s"
    )


def report(world: LoadedCluster, outcome: ClusterOutcome, head: str) -> None:
    clients = world.clients
    world.progress(
        f"{head}: {clients.ledger.acknowledged_count} acknowledged, {clients.reader.records_read} read, "
        f"{clients.chain.output_reader.records_read} copied in transactions"
    )


def verify(world: LoadedCluster, look: Callable[[], Iterable[str]] = list) -> None:
    """Compare all records with what was acknowledged, then the logs of all replicas with each other.

    Before the cluster is stopped, `look` may find other violations.
    """
    clients = world.clients
    clients.drain_and_verify()
    world.settle()
    for violation in look():
        clients.ledger.fail(violation)
    if world.cluster.stop() != 0:
        clients.ledger.fail("a clean stop ended with an error")
    folders = {number: node.place.data for number, node in world.cluster.nodes.items() if node.is_broker}
    for partition in clients.partitions:
        for difference in compare(partition, folders):
            clients.ledger.fail(difference)
