"""`make bench`: both systems alternately, several rounds; writes docs/BENCHMARKS.md and charts."""

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
from pathlib import Path
from typing import Any

from tools.bench import clients, loadgen, measures, page, rebalance, transactions
from tools.bench.measures import Bench, Numbers
from tools.bench.partitions import with_partitions
from tools.bench.systems import Kafka, Runnel, System
from tools.bench.table import compare
from tools.fetch.programs import Unavailable
from tools.kafka.commands import kafka_jars
from tools.processes import unwind_when_ended

ROOT = Path(__file__).resolve().parent.parent.parent
OF_EVERY_RUN = ("start_s", "memory_idle_mb", "memory_peak_mb")
"""Measured whatever a run is about, and only by a whole one as it should be."""


def measure_round(
    systems: list[System], scratch: Path, program: Path | None, options: argparse.Namespace
) -> dict[str, Numbers]:
    """One round: both brokers are up, and each part is measured with one, then with the other.

    A shared machine has slower and faster minutes; so both get the same ones.
    """
    with ExitStack() as stack:
        benches: dict[str, Bench] = {}
        numbers: dict[str, Numbers] = {}
        for system in systems:
            folder = scratch / f"{system.name}-round"
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            running = system.launch(folder)
            stack.callback(running.stop)
            benches[system.name] = bench = Bench(running, program, options.seconds, options.scale)
            numbers[system.name] = {
                "start_s": running.started_in_s,
                "memory_idle_mb": bench.meter.memory_mb(),
            }
        for name, (part, takes) in parts_of(program).items():
            if options.only and name not in options.only:
                continue
            taken: dict[str, list[Numbers]] = {system.name: [] for system in systems}
            for take in range(takes):
                for system in systems if take % 2 == 0 else systems[::-1]:
                    # Writing out what was measured before is no part of what comes.
                    os.sync()
                    taken[system.name].append(part(benches[system.name]))
            for system in systems:
                numbers[system.name] |= medians(taken[system.name])
            print(f"    {name}: done", flush=True)
        for system in systems:
            numbers[system.name]["memory_peak_mb"] = benches[system.name].meter.memory_peak_mb()
    if not options.only or "rebalance" in options.only:
        for system in systems:
            folder = scratch / f"{system.name}-rebalance"
            numbers[system.name] |= rebalance.rebalance(system, folder)
            shutil.rmtree(folder, ignore_errors=True)
        print("    rebalance: done", flush=True)
    return numbers


def parts_of(program: Path | None) -> dict[str, tuple[Callable[[Bench], Numbers], int]]:
    """What is measured, and how often in a round: what takes a second or two, several times."""
    parts: dict[str, tuple[Callable[[Bench], Numbers], int]] = {}
    if program is not None:
        parts["small"] = measures.small_requests, 1
    parts["end-to-end"] = clients.end_to_end, 3
    parts["librdkafka"] = clients.librdkafka, 5
    parts["java"] = clients.java, 1
    parts["transactions"] = transactions.transactions, 1
    if program is not None:
        # Last, as gigabytes written and removed are felt for a while: pages must be found anew.
        parts["durable"] = measures.durable, 1
        parts["bulk"] = measures.bulk, 1
    return parts


def medians(takes: list[Numbers]) -> Numbers:
    return {key: statistics.median(take[key] for take in takes) for key in takes[0]}


def systems_here() -> list[System]:
    """Runnel, and Kafka where it can be run."""
    found: list[System] = [Runnel()]
    try:
        kafka_jars()
        found.append(Kafka())
    except Unavailable as reason:
        print(f"Runnel is measured alone: {reason}")
    return found


def scaling(systems: list[System], scratch: Path, program: Path | None, options: argparse.Namespace) -> Any:
    results: dict[str, list[Numbers]] = {system.name: [] for system in systems}
    for count in options.partitions:
        for system in systems:
            # Kafka needs minutes and gigabytes for ten thousand; what it costs shows at a thousand.
            if system.name == "Kafka" and count > 1000:
                continue
            folder = scratch / f"{system.name}-{count}"
            print(f"  {system.name} with {count} partitions", flush=True)
            results[system.name].append(with_partitions(system, folder, program, count, options.seconds))
            shutil.rmtree(folder, ignore_errors=True)
    return results


def options_of(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("--quick", action="store_true", help="one short round, nothing is written")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each raw load")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the client records")
    parser.add_argument("--partitions", type=int, nargs="*", default=[10, 1000, 10_000])
    parser.add_argument(
        "--only",
        nargs="*",
        help="small bulk durable end-to-end librdkafka java transactions rebalance; other rows stay",
    )
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.seconds, options.scale, options.partitions = 1, 2.0, 0.2, []
    return options


def main() -> int:
    options = options_of(sys.argv[1:])
    unwind_when_ended()
    try:
        program: Path | None = loadgen.build(ROOT)
    except loadgen.NoLoadgen as reason:
        print(f"raw requests are left out: {reason}")
        program = None
    systems = systems_here()
    results: dict[str, Any] = {
        "machine": f"{platform.machine()}, Linux {platform.release()}, Python {platform.python_version()}",
        "settings": {system.name: system.settings for system in systems},
        "rounds": {system.name: [] for system in systems},
        "partitions": {},
    }
    results["settings"]["machine"] = results.pop("machine")
    with tempfile.TemporaryDirectory(prefix="runnel-bench-") as name:
        scratch = Path(name)
        for number in range(options.rounds):
            print(f"round {number + 1} of {options.rounds}", flush=True)
            order = systems if number % 2 == 0 else systems[::-1]
            for system_name, numbers in measure_round(order, scratch, program, options).items():
                results["rounds"][system_name].append(numbers)
        if options.partitions and not options.only:
            results["partitions"] = scaling(systems, scratch, program, options)
    if options.only:
        results = within_the_last(results, options.only)
    return report(results, write=not options.quick)


def within_the_last(results: dict[str, Any], parts_measured: list[str]) -> dict[str, Any]:
    """The last results, with what was measured now in the place of the same rows."""
    path = ROOT / "docs" / "bench" / "latest.json"
    if not path.exists():
        return results
    whole: dict[str, Any] = json.loads(path.read_text())
    whole["settings"]["measured in a later run"] = ", ".join(parts_measured)
    for name, rounds in results["rounds"].items():
        kept = whole["rounds"].setdefault(name, [])
        parts = [{key: one[key] for key in one if key not in OF_EVERY_RUN} for one in rounds]
        replaced = {key for part in parts for key in part}
        kept[:] = [{key: one[key] for key in one if key not in replaced} for one in kept] + parts
    return whole


def report(results: dict[str, Any], write: bool) -> int:
    reasons = Path(__file__).with_name("reasons.toml")
    compared = compare(results["rounds"], "Runnel", "Kafka")
    if write:
        folder = ROOT / "docs" / "bench"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "latest.json").write_text(json.dumps(results, indent=1) + "\n")
        compared = page.write(results, ROOT / "docs", reasons)
    print(page.table(compared))
    return 0 if all(line.reaches(line.row.floor) for line in compared) else 1


if __name__ == "__main__":
    sys.exit(main())
