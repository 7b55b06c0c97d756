"""The part of `make crash` that runs a cluster, of Runnel or of Apache Kafka, and reports on it."""

from collections.abc import Callable
from pathlib import Path

from tools.cluster import network
from tools.crash import volumes
from tools.crash.cluster import run
from tools.crash.cluster.operations import hand_overs, operations
from tools.crash.cluster.page import PAGE, exceeded, page
from tools.crash.cluster.quiet import quiet
from tools.crash.cluster.rotation import rotation
from tools.crash.cluster.run import ClusterOutcome
from tools.crash.rounds import Progress

KAFKA_SHARE = 10
"""Apache Kafka gets a tenth of the rounds: each takes several times as long."""


def missing() -> str | None:
    """Why there can be no cluster here, or None."""
    return network.missing() or volumes.missing()


def cluster(
    folder: Path, rounds: int, seed: int, progress: Progress, is_kafka: bool = False, is_secured: bool = False
) -> bool:
    """All rounds, and with `is_kafka` some of them in Apache Kafka; a full run writes docs/FAILOVER.md."""
    measured = rounds_of(folder / "runnel", rounds, seed, progress, False, is_secured)
    beside = None
    if is_kafka:
        beside = rounds_of(folder / "kafka", rounds // KAFKA_SHARE, seed, progress, True, is_secured).gaps
    print("\n".join(f"  {line}" for line in measured.gaps.table()))
    for missed in exceeded(measured.gaps):
        print(f"  SLOW {missed}")
    if rounds >= run.ROUNDS and not measured.violations and not is_secured:
        PAGE.write_text(page(measured.gaps, measured.rounds, beside))
    return not measured.violations


def rounds_of(
    folder: Path, rounds: int, seed: int, progress: Progress, is_kafka: bool, is_secured: bool
) -> ClusterOutcome:
    """All rounds in three clusters: with default durability, through power cuts, and with hand-overs."""
    name = ("Apache Kafka" if is_kafka else "cluster") + (" over mTLS" if is_secured else "")
    share = min(1.0, rounds / run.ROUNDS)
    parts: dict[str, Callable[[Path], ClusterOutcome]] = {
        "faults": lambda part: run.faults(part, rounds, seed, progress, is_kafka, is_secured),
        "power cuts": lambda part: run.power_cuts(part, rounds, seed, progress, is_kafka, is_secured),
        "hand-overs": lambda part: hand_overs(part, share, seed, progress, is_kafka, is_secured),
    }
    whole = ClusterOutcome()
    for part, measure in parts.items():
        outcome = measure(folder / part.replace(" ", "-"))
        report(f"{name}, {part}", outcome)
        whole.gaps.update(outcome.gaps)
        whole.rounds.update(outcome.rounds)
        whole.violations += outcome.violations
    return whole


def operate(folder: Path, share: float, seed: int, progress: Progress, is_kafka: bool = False) -> bool:
    """Restarts, growth and shrinking under load."""
    name = "Apache Kafka" if is_kafka else "cluster"
    return report(f"{name}, operations", operations(folder, share, seed, progress, is_kafka))


def rotate(folder: Path, seed: int, progress: Progress) -> bool:
    """All certificates are exchanged under load."""
    return report("cluster over mTLS, rotation of certificates", rotation(folder, seed, progress))


def keep_quiet(folder: Path, minutes: float, seed: int, progress: Progress, is_kafka: bool = False) -> bool:
    """Full load without a fault."""
    outcome = quiet(folder, minutes, seed, progress, is_kafka)
    print(
        f"{'Apache Kafka' if is_kafka else 'cluster'}, no faults: {outcome.seconds:.0f} s, "
        f"{outcome.sent} sent, {outcome.read} read, the added replica in sync after "
        f"{outcome.caught_up_s:.0f} s; {len(outcome.changes.fencings)} fencings, "
        f"{outcome.changes.elections} elections, {outcome.changes.in_sync_changes} changes of ISRs"
    )
    for violation in outcome.violations:
        print(f"  VIOLATION {violation}")
    print(f"  {'FAILED' if outcome.violations else 'no broker was fenced, no leader elected'}", flush=True)
    return not outcome.violations


def report(name: str, outcome: ClusterOutcome) -> bool:
    counted = ", ".join(f"{count} {kind}" for kind, count in outcome.rounds.items())
    print(
        f"{name}: {counted}; {outcome.acknowledged} acknowledged, {outcome.read} read, "
        f"{outcome.attempts} transactions tried, {outcome.outputs} outputs, {outcome.seconds:.0f} s"
    )
    if outcome.gaps.by_kind:
        print("\n".join(f"  {line}" for line in outcome.gaps.table()))
    for violation in outcome.violations:
        print(f"  VIOLATION {violation}")
    kept = "nothing lost, duplicated, reordered or torn; no client is stuck; all replicas are equal"
    print(f"  {'FAILED' if outcome.violations else kept}", flush=True)
    return not outcome.violations
