"""`make crash`: kill -9, power cuts, a full disk, transactions, Spark, a cluster; exit 1 on a violation."""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tools.broker_process import BrokerProcess
from tools.crash import volumes
from tools.crash.chain.run import ChainOutcome, run_chain
from tools.crash.chain.workers import java_missing
from tools.crash.cluster import report as cluster_report
from tools.crash.cluster.run import ROUNDS
from tools.crash.disk_full import disk_full
from tools.crash.mixed import run as mixed
from tools.crash.powercut import power_cuts
from tools.crash.rounds import Outcome, Progress, kill, run_rounds
from tools.crash.spark.run import MakeJob, SparkOutcome, under_kills
from tools.crash.spark.to_table import ArchiveToTable
from tools.crash.spark.to_topic import CopyToTopic
from tools.processes import unwind_when_ended

CHAINS = [
    ("python", "commit", "classic"),
    ("python", "never", "consumer"),
    ("java", "commit", "classic"),
    ("java", "never", "classic"),
]
SPARK_JOBS: dict[str, MakeJob] = {"topic to topic": CopyToTopic, "topic to table": ArchiveToTable}
SPARK_KILLS = 20
QUICK = {"rounds": 20, "cuts": 2, "kills": 10, "minutes": 3.0}
CLUSTERS = ("cluster", "operations", "quiet", "rotation")
BESIDE_KAFKA = ("cluster", "operations", "quiet")
MIXED = ("mixed", "migration")


def kills(folder: Path, rounds: int, seed: int, progress: Progress) -> Outcome:
    broker = BrokerProcess(folder / "data")
    try:
        return run_rounds(broker, rounds, kill, seed, progress)
    finally:
        broker.kill()


def report(name: str, outcome: Outcome) -> bool:
    starts = outcome.start_seconds
    timing = f", start {statistics.median(starts):.2f} s (worst {max(starts):.2f} s)" if starts else ""
    print(
        f"{name}: {outcome.rounds} rounds, {outcome.acknowledged} acknowledged, {outcome.read} read{timing}"
    )
    for violation in outcome.violations:
        print(f"  VIOLATION {violation}")
    print(f"  {'FAILED' if outcome.violations else 'nothing lost, changed, duplicated or reordered'}")
    return not outcome.violations


def chains(folder: Path, kills: int, seed: int, progress: Progress) -> Iterator[bool]:
    """Chains of workers in Python and in Java, with both flush policies and both group protocols."""
    for client, policy, protocol in CHAINS:
        name = f"chain of {client} workers, flush.policy={policy}, group.protocol={protocol}"
        refusal = java_missing() if client == "java" else None
        if refusal is not None:
            print(f"{name} SKIPPED: {refusal}")
            continue
        directory = folder / f"{client}-{policy}-{protocol}"
        yield report_chain(name, run_chain(directory, kills, seed, policy, client, protocol, progress))


def report_chain(name: str, outcome: ChainOutcome) -> bool:
    print(
        f"{name}: {outcome.kills} kills ({outcome.broker_kills} of the broker, "
        f"{outcome.worker_kills} of workers), "
        f"{outcome.pauses} pauses, {outcome.inputs} inputs, {outcome.outputs} outputs, "
        f"{outcome.attempts} transactions tried, {outcome.aborted} aborted records never returned, "
        f"{outcome.seconds:.0f} s"
    )
    for violation in outcome.violations:
        print(f"  VIOLATION {violation}")
    kept = "every input once in the output, in order per key; no transaction hangs"
    print(f"  {'FAILED' if outcome.violations else kept}")
    return not outcome.violations


def spark_jobs(folder: Path, kills: int, seed: int, progress: Progress) -> Iterator[bool]:
    """Jobs on a cluster, to a topic by transactions and to a table by snapshots."""
    for name, make_job in SPARK_JOBS.items():
        directory = folder / name.replace(" ", "-")
        yield report_spark(name, under_kills(make_job, directory, kills, seed, progress))


def report_spark(name: str, outcome: SparkOutcome) -> bool:
    killed = ", ".join(f"{count} of {name}s" for name, count in sorted(outcome.kills.items()))
    print(
        f"{name} by Spark: {outcome.kills.total()} kills ({killed}), {outcome.drivers} drivers, "
        f"{outcome.inputs} inputs, {outcome.outputs} outputs, "
        f"{outcome.undone} records written and never returned, {outcome.seconds:.0f} s"
    )
    for violation in outcome.violations:
        print(f"  VIOLATION {violation}")
    kept = f"every input once in the output; no transaction stays open; audit: {outcome.audit}"
    print(f"  {'FAILED' if outcome.violations else kept}")
    return not outcome.violations


def clusters(folder: Path, options: argparse.Namespace, progress: Progress) -> bool:
    """The selected part that runs a cluster; it fails if it cannot run here."""
    refusal = cluster_report.missing()
    if refusal is not None:
        print(f"{options.only} SKIPPED: {refusal}")
        return False
    if options.only == "operations":
        share = min(1.0, options.rounds / ROUNDS)
        return cluster_report.operate(folder, share, options.seed, progress, options.kafka)
    if options.only == "quiet":
        return cluster_report.keep_quiet(folder, options.minutes, options.seed, progress, options.kafka)
    if options.only == "rotation":
        return cluster_report.rotate(folder, options.seed, progress)
    return cluster_report.cluster(
        folder, options.rounds, options.seed, progress, options.kafka, options.secured
    )


def with_kafka(folder: Path, options: argparse.Namespace, progress: Progress) -> bool:
    """The selected part that runs nodes of Runnel and of Apache Kafka; it fails if it cannot run here."""
    refusal = java_missing()
    if refusal is not None:
        print(f"{options.only} SKIPPED: {refusal}")
        return False
    if options.only == "migration":
        return mixed.migration(folder, options.seed, progress)
    return mixed.clusters(folder, options.rounds, options.seed, progress)


def options_of(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make crash")
    parser.add_argument("--rounds", type=int, default=200, help="kill -9 rounds")
    parser.add_argument("--cuts", type=int, default=20, help="power cuts")
    parser.add_argument("--kills", type=int, default=100, help="kill -9 of broker and workers of each chain")
    parser.add_argument("--minutes", type=float, default=30.0, help="of full load without faults")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="a tenth of it")
    parser.add_argument("--only", choices=["kill", "powercut", "full", "chain", "spark", *CLUSTERS, *MIXED])
    parser.add_argument(
        "--kafka", action="store_true", help="of a cluster: beside Apache Kafka; others: in it"
    )
    parser.add_argument("--secured", action="store_true", help="of a cluster: mutual TLS and ACLs")
    options = parser.parse_args(arguments)
    if options.quick:
        vars(options).update(QUICK)
    if options.kafka and options.only not in BESIDE_KAFKA:
        parser.error(f"--kafka requires --only {', '.join(BESIDE_KAFKA)}")
    if options.secured and options.only != "cluster":
        parser.error("--secured requires --only cluster")
    return options


def main() -> int:
    options = options_of()
    unwind_when_ended()

    def progress(line: str) -> None:
        if sys.stdout.isatty():
            print(f"\r  {line}\033[K", end="", flush=True)
        else:
            print(f"  {line}", flush=True)

    passed = []
    refusal = volumes.missing()
    with tempfile.TemporaryDirectory(prefix="runnel-crash-") as name:
        folder = Path(name)
        # First, as it enters a network namespace, where threads that are running already would not follow.
        if options.only in (*CLUSTERS, *MIXED):
            measure = clusters if options.only in CLUSTERS else with_kafka
            passed.append(measure(folder / "cluster", options, progress))
        if options.only in (None, "kill"):
            outcome = kills(folder / "kill", options.rounds, options.seed, progress)
            passed.append(report("kill -9", outcome))
        if refusal is not None and options.only not in ("chain", "spark", *CLUSTERS, *MIXED):
            print(f"power cut and full disk SKIPPED: {refusal}")
        if refusal is None and options.only in (None, "powercut"):
            passed.append(
                report("power cut", power_cuts(folder / "cut", options.cuts, options.seed, progress))
            )
        if refusal is None and options.only in (None, "full"):
            passed.append(report("disk full", disk_full(folder / "full", progress)))
        if options.only in (None, "chain"):
            passed.extend(chains(folder / "chain", options.kills, options.seed, progress))
        if options.only in (None, "spark"):
            # A driver takes half a minute to restart: unless selected explicitly, a few kills suffice.
            count = options.kills if options.only else min(options.kills, SPARK_KILLS)
            passed.extend(spark_jobs(folder / "spark", count, options.seed, progress))
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
