"""`make bench`: both systems alternately, several rounds; writes docs/BENCHMARKS.md and charts."""

import argparse
import json
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.bench import clients, loadgen, measures, page, rebalance, transactions
from tools.bench.measures import Bench, Numbers
from tools.bench.partitions import with_partitions
from tools.bench.systems import Kafka, Runnel, System
from tools.bench.table import compare
from tools.conformance.suites import kit_folder
from tools.processes import unwind_when_ended

ROOT = Path(__file__).resolve().parent.parent.parent
DURABLE = {"Runnel": {"flush_policy": "commit"}, "Kafka": {"flush_messages": "1"}}


def measure(system: System, folder: Path, program: Path | None, options: argparse.Namespace) -> Numbers:
    """One round of one system, over a folder of its own."""
    running = system.launch(folder)
    bench = Bench(running, program, options.seconds, options.scale)
    numbers: Numbers = {"start_s": running.started_in_s, "memory_idle_mb": bench.meter.memory_mb()}
    parts: dict[str, Callable[[Bench], Numbers]] = {}
    if program is not None:
        parts["small"] = measures.small_requests
        parts["bulk"] = measures.bulk
        parts["durable"] = lambda bench: measures.durable(bench, **DURABLE[system.name])
    parts["end-to-end"] = clients.end_to_end
    parts["librdkafka"] = clients.librdkafka
    if clients.jars() is not None:
        parts["java"] = clients.java
    parts["transactions"] = transactions.transactions
    try:
        for name, part in parts.items():
            if not options.only or name in options.only:
                numbers |= part(bench)
                print(f"    {system.name} {name}: done", flush=True)
        numbers["memory_peak_mb"] = bench.meter.memory_peak_mb()
    finally:
        running.stop()
        shutil.rmtree(folder, ignore_errors=True)
    if not options.only or "rebalance" in options.only:
        numbers |= rebalance.rebalance(system, folder)
        shutil.rmtree(folder, ignore_errors=True)
        print(f"    {system.name} rebalance: done", flush=True)
    return numbers


def systems_here() -> list[System]:
    """Runnel, and Kafka where the kit that starts it is present."""
    kit = kit_folder(ROOT)
    found: list[System] = [Runnel()]
    if kit is not None and clients.jars() is not None:
        found.append(Kafka(kit / "kafka-peer.sh"))
    else:
        print("Apache Kafka is not here: Runnel is measured alone")
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
        help="small bulk durable end-to-end librdkafka java transactions rebalance; writes nothing",
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
            for system in systems if number % 2 == 0 else systems[::-1]:
                folder = scratch / f"{system.name}-round"
                results["rounds"][system.name].append(measure(system, folder, program, options))
        if options.partitions and not options.only:
            results["partitions"] = scaling(systems, scratch, program, options)
    return report(results, write=not (options.quick or options.only))


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
