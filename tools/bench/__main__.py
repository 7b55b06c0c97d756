"""`make bench`: Runnel and Apache Kafka, both warm, alternately; writes docs/BENCHMARKS.md and charts."""

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.bench import (
    clients,
    cluster,
    http_gateway,
    http_table,
    loadgen,
    measures,
    page,
    rebalance,
    security,
    transactions,
    workers,
)
from tools.bench.measures import Bench, Numbers
from tools.bench.partitions import with_partitions
from tools.bench.systems import Kafka, Meter, Runnel, System
from tools.bench.table import CLUSTER_PARTITIONS, LATENCY_ROWS, compare
from tools.bench.warm_up import WarmUpPlan
from tools.fetch.programs import missing
from tools.kafka.commands import kafka_jars
from tools.processes import unwind_when_ended

ROOT = Path(__file__).resolve().parent.parent.parent
SETTINGS = {"log.segment.delete.delay.ms": "1000"}
"""For both: the pages of topics that are deleted between measurements are free again soon."""


@dataclass(frozen=True, slots=True)
class Part:
    """A function that measures, and how often it is called in a round."""

    measure: Callable[[Bench], Numbers]
    takes: int = 1
    is_client: bool = False
    """The client sets most of the pace, and starts cold itself."""


PARTS = {
    "small": Part(measures.small_requests),
    "latency": Part(measures.latency),
    "librdkafka": Part(clients.librdkafka, takes=3, is_client=True),
    "java": Part(clients.java, is_client=True),
    "transactions": Part(transactions.transactions, is_client=True),
    # Last, as gigabytes that are written and deleted have effects for a while.
    "durable": Part(measures.durable),
    "bulk": Part(measures.bulk),
}
COMPARED = (*PARTS, "rebalance", "cluster", "security")
ALONE = ("http", "workers")
"""Parts without Apache Kafka."""


def main() -> int:
    options = options_of(sys.argv[1:])
    unwind_when_ended()
    is_compared = bool(set(options.only or COMPARED).intersection(COMPARED))
    if reasons := missing([loadgen.build, *((loadgen.libssl, kafka_jars) if is_compared else ())]):
        print(*(f"make bench: {reason}" for reason in reasons), sep="\n", file=sys.stderr)
        return 2
    program = loadgen.build()
    systems: list[System] = [Runnel(), Kafka()]
    machine = f"{platform.machine()}, {os.cpu_count()} CPUs, Linux {platform.release()}"
    results: dict[str, Any] = {
        "settings": {
            **{system.name: system.settings for system in systems},
            "both": ", ".join(f"{key}={value}" for key, value in SETTINGS.items()),
            "machine": f"{machine}, Python {platform.python_version()}",
        },
        "run": {
            "is_quick": options.quick,
            "rounds": options.rounds,
            "seconds": options.seconds,
            "window_s": options.warm_up.window_s,
            "warm_up_s": options.warm_up.limit_s,
        },
        "rounds": {},
        "warm_up": {},
        "partitions": {},
        "workers": [],
        "http": {},
    }
    with tempfile.TemporaryDirectory(prefix="runnel-bench-") as name:
        folder = Path(name)
        if is_compared:
            results["rounds"], results["warm_up"] = measure(systems, folder, program, options)
        add_parts(results, folder, program, options)
        is_whole = True
        if options.partitions and not options.only:
            try:
                results["partitions"] = scaling(systems, folder, program, options)
            except loadgen.LoadFailed as failure:
                # An hour of measurements is not lost by the last one.
                print(f"the measurements with many partitions failed: {failure}", file=sys.stderr)
                is_whole = False
    write = options.write or not (options.quick or options.only)
    status = report(results, write, options.only or [])
    return status if is_whole else 1


def options_of(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("--quick", action="store_true", help="one round of short loads, no page")
    parser.add_argument("--write", action="store_true", help="write the page also after a short run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each raw load")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the client records")
    parser.add_argument("--partitions", type=int, nargs="*", default=[10, 1000, 10_000])
    parser.add_argument(
        "--only",
        nargs="*",
        choices=[*COMPARED, *ALONE],
        help="some parts, no page",
    )
    options = parser.parse_args(arguments)
    options.warm_up = WarmUpPlan()
    if options.quick:
        options.rounds, options.seconds, options.scale, options.partitions = 1, 2.0, 0.1, []
        options.warm_up = WarmUpPlan(window_s=1.0, limit_s=3.0, first_limit_s=30.0)
    return options


def measure(
    systems: list[System], folder: Path, program: Path, options: argparse.Namespace
) -> tuple[dict[str, list[Numbers]], dict[str, dict[str, str]]]:
    """All rounds on two brokers that stay up, and how each was warmed."""
    parts = {name: part for name, part in PARTS.items() if not options.only or name in options.only}
    rounds: dict[str, list[Numbers]] = {system.name: [] for system in systems}
    for _ in range(options.rounds):
        for system in systems:
            rounds[system.name].append(start_up(system, folder / f"{system.name}-start"))
    with ExitStack() as stack:
        benches: dict[str, Bench] = {}
        for system in systems:
            running = system.launch(folder / system.name, SETTINGS)
            stack.callback(running.stop)
            benches[system.name] = Bench(running, program, options.seconds, options.scale, options.warm_up)
        warm_up(parts, benches, options.quick)
        for number in range(options.rounds):
            print(f"round {number + 1} of {options.rounds}", flush=True)
            order = systems if number % 2 == 0 else systems[::-1]
            for system_name, numbers in measure_round(parts, order, benches).items():
                rounds[system_name][number] |= numbers
        for name, bench in benches.items():
            rounds[name][-1]["memory_peak_mb"] = bench.meter.memory_peak_mb()
    if "rebalance" in (options.only or ([] if options.quick else ["rebalance"])):
        for number in range(options.rounds):
            for system in systems:
                place = folder / f"{system.name}-rebalance"
                rounds[system.name][number] |= rebalance.rebalance(system, place)
                shutil.rmtree(place, ignore_errors=True)
        print("  rebalance", flush=True)
    warm_ups = {
        name: {workload: done.describe() for workload, done in bench.warm_ups.items()}
        for name, bench in benches.items()
    }
    return rounds, warm_ups


def add_parts(results: dict[str, Any], folder: Path, program: Path, options: argparse.Namespace) -> None:
    """The parts that start brokers of their own."""
    if "cluster" in (options.only or ["cluster"]):
        add_clusters(results, folder / "cluster", program, options)
    if "security" in (options.only or ["security"]):
        add_security(results, folder / "security", program, options)
    if "http" in (options.only or ["http"]):
        results["http"] = http_gateway.compare_http(
            folder / "http", program, options.rounds, options.seconds, options.warm_up, SETTINGS
        )
    if "workers" in (options.only or ["workers"]):
        results["workers"] = workers.compare_workers(
            folder / "workers", program, options.seconds, options.warm_up
        )


def add_clusters(results: dict[str, Any], folder: Path, program: Path, options: argparse.Namespace) -> None:
    """Three nodes of each, in as many rounds as the others."""
    rounds, warm_ups = cluster.compare_clusters(
        folder,
        program,
        options.rounds,
        options.seconds,
        options.warm_up,
        CLUSTER_PARTITIONS[:1] if options.quick else CLUSTER_PARTITIONS,
    )
    add_rounds(results, rounds, warm_ups)
    shutil.rmtree(folder, ignore_errors=True)


def add_security(results: dict[str, Any], folder: Path, program: Path, options: argparse.Namespace) -> None:
    """Brokers with TLS, SASL and ACLs, in as many rounds as the others."""
    compared = security.compare_security(folder, program, options.rounds, options.seconds, options.warm_up)
    add_rounds(results, *compared)
    shutil.rmtree(folder, ignore_errors=True)


def add_rounds(
    results: dict[str, Any], rounds: dict[str, list[Numbers]], warm_ups: dict[str, dict[str, str]]
) -> None:
    for name, measured in rounds.items():
        for numbers, more in zip(results["rounds"][name], measured, strict=True):
            numbers |= more
        results["warm_up"][name] |= warm_ups[name]


def start_up(system: System, folder: Path) -> Numbers:
    """A broker that has just started."""
    running = system.launch(folder)
    try:
        return {"start_s": running.started_in_s, "memory_idle_mb": Meter(running.pid).memory_mb()}
    finally:
        running.stop()
        shutil.rmtree(folder, ignore_errors=True)


def warm_up(parts: dict[str, Part], benches: dict[str, Bench], is_quick: bool) -> None:
    """Repeat each workload on each broker until it is steady; a short run leaves out those of clients."""
    for name, bench in benches.items():
        for part_name, part in parts.items():
            if is_quick and part.is_client:
                continue
            before = set(bench.warm_ups)
            part.measure(bench)
            for workload in bench.warm_ups.keys() - before:
                print(f"{name} {part_name} {workload}: {bench.warm_ups[workload].describe()}", flush=True)
        bench.warm_up = None


def measure_round(
    parts: dict[str, Part], order: list[System], benches: dict[str, Bench]
) -> dict[str, Numbers]:
    """Each part with one broker, then with the other: a shared machine has slower and faster minutes."""
    found: dict[str, Numbers] = {system.name: {} for system in order}
    for name, part in parts.items():
        for system_name, numbers in measure_part(part, order, benches).items():
            found[system_name] |= numbers
        print(f"  {name}", flush=True)
    return found


def measure_part(part: Part, order: list[System], benches: dict[str, Bench]) -> dict[str, Numbers]:
    taken: dict[str, list[Numbers]] = {system.name: [] for system in order}
    for take in range(part.takes):
        for system in order if take % 2 == 0 else order[::-1]:
            # Writing out what was measured before is no part of the next measurement.
            os.sync()
            taken[system.name].append(part.measure(benches[system.name]))
    return {name: medians(takes) for name, takes in taken.items()}


def medians(takes: list[Numbers]) -> Numbers:
    return {key: statistics.median(take[key] for take in takes) for key in takes[0]}


def scaling(systems: list[System], folder: Path, program: Path, options: argparse.Namespace) -> Any:
    results: dict[str, list[Numbers]] = {system.name: [] for system in systems}
    for count in options.partitions:
        for system in systems:
            # Kafka needs minutes and gigabytes for ten thousand; what it costs shows at a thousand.
            if system.name == "Kafka" and count > 1000:
                continue
            place = folder / f"{system.name}-{count}"
            print(f"  {system.name} with {count} partitions", flush=True)
            results[system.name].append(with_partitions(system, place, program, count, options.seconds))
            shutil.rmtree(place, ignore_errors=True)
    return results


def with_last_run(results: dict[str, Any], file: Path, only: list[str]) -> dict[str, Any]:
    """What the page shows: if only parts without Apache Kafka were measured, the others of the last run."""
    if not only or not set(only) <= set(ALONE) or not file.exists():
        return results
    last: dict[str, Any] = json.loads(file.read_text())
    return {**results, **last, **{part: results[part] for part in only}}


def report(results: dict[str, Any], write: bool, only: list[str]) -> int:
    """Print the tables, write the page; 1 if a full run is below a floor."""
    compared = compare(results["rounds"], "Runnel", "Kafka")
    if write:
        file = ROOT / "docs" / "bench" / "latest.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        shown = with_last_run(results, file, only)
        file.write_text(json.dumps(shown, indent=1) + "\n")
        page.write(shown, ROOT / "docs", Path(__file__).with_name("reasons.toml"))
    if compared:
        print(page.table(compared))
    latencies = compare(results["rounds"], "Runnel", "Kafka", LATENCY_ROWS)
    if latencies:
        print(page.latency_table(latencies))
    if results["http"]:
        compared += http_table.http_lines(results["http"]["rounds"])
        print(http_table.http_table(results["http"]["rounds"]))
    if results["workers"]:
        print(page.workers_table(results["workers"]))
    if results["run"]["is_quick"]:
        print("a short run: its ratios are rough")
        return 0
    return 0 if all(line.reaches(line.row.floor) for line in compared) else 1


if __name__ == "__main__":
    sys.exit(main())
