"""docs/BENCHMARKS.md: table, charts, settings, and why a goal was missed."""

import tomllib
from pathlib import Path
from typing import Any

from tools.bench import charts, http_table
from tools.bench.table import LATENCY_ROWS, Compared, compare
from tools.kafka.commands import VERSION

HEAD = """# Benchmarks

Runnel and Apache Kafka {version} on one machine, measured alternately in one run of {rounds} rounds: medians,
and their ratio Runnel / Kafka. The goal is the ratio that Runnel aims for, the floor the one that it must not
miss. Written by `make bench` from [bench/latest.json](bench/latest.json), which contains every measurement.
{length}
Both brokers stay up for the whole run. Before anything is measured, each workload is repeated on each broker
until three windows of {window:g} s in a row agree within 5 %, for at most {limit:g} s: a JVM compiles for
most of a minute, and an earlier comparison would favour Runnel. The last section lists these times.
Times and rates vary on a shared machine: the ratios and the CPU figures are the most reliable.

Both keep their defaults: records are acknowledged from the page cache, neither calls fsync. The rows
"acknowledged from the disk" are the exception: Runnel with `flush.policy=commit` (one fdatasync for all
waiting requests), Kafka with `flush.messages=1`.

TLS is version 1.3 with AES-128-GCM and an ECDSA key (P-256), without resumption, for both. A "SASL_SSL
connection" is opened, authenticated with SCRAM-SHA-512 (4,096 iterations, which the client computes once)
and closed. "As a user" is a connection in clear text that is authenticated by SASL PLAIN, with one ACL that
permits WRITE; all other ACLs apply to other users and topics. Brokers with few and with many ACLs are
measured alternately; then an ACL of another user is created and deleted repeatedly.
"""
SHORT_RUN = """
**This is a short run (`QUICK=1`): one round of short loads with a short warm-up. Its ratios are rough.**
"""

LATENCY = """Records of 100 bytes to 4 partitions, acks=all, sent on a fixed schedule that does not wait for
the broker (an open loop): record i is due at i / rate, and its latency counts from that moment, even if a
stall delays the sending. Records that are due are sent in one batch per partition, with at most 5 batches in
flight, as with `linger.ms=0`. End-to-end latency ends when a consumer has the record. All in microseconds."""

SCALING = [
    ("create_s", "create them", "s"),
    ("memory_mb", "memory after creating", "MB"),
    ("memory_loaded_mb", "memory after load", "MB"),
    ("produce_cpu_us", "broker CPU per small produce", "µs"),
    ("metadata_one_topic_us", "Metadata for one topic, p50", "µs"),
    ("stop_s", "clean stop", "s"),
    ("restart_s", "start to first response after it", "s"),
    ("memory_restarted_mb", "memory after restart", "MB"),
]
WORKERS = """`runnel serve --workers N` with acks=1 and 12 partitions. The load generator runs on the same
cores, so that a second worker has no core of its own here."""
WORKER_ROWS = [
    ("produce_rps", "produce 100 B, 12 connections x 8 in flight", "req/s"),
    ("produce_cpu_us", "CPU of all workers per request", "µs"),
    ("produce_1m_mbps", "produce 1 MB batches, 4 connections x 2 in flight", "MB/s"),
    ("produce_1m_cpu_us", "CPU of all workers per batch", "µs"),
]
CHARTED = {"memory_mb": "memory.svg", "restart_s": "restart.svg"}


def number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def target(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.2g}x" if value >= 0.5 else f"1/{1 / value:.0f}"


def table(compared: list[Compared]) -> str:
    lines = ["| | Runnel | Kafka | ratio | goal | floor | reached |", "|---|---:|---:|---:|---:|---:|---|"]
    for line in compared:
        row = line.row
        sign = "≥ " if row.more_is_better else "≤ "
        ratio = "–" if line.ratio is None else f"{line.ratio:.2g}x"
        goal, floor = (sign + target(value) if value else "" for value in (row.goal, row.floor))
        cells = [
            f"{row.label}, {row.unit}",
            number(line.ours),
            number(line.theirs),
            ratio,
            goal,
            floor,
            line.verdict,
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def scaling_table(partitions: dict[str, list[dict[str, float]]]) -> str:
    """One column per system and number of partitions."""
    columns = [(name, numbers) for name, runs in partitions.items() for numbers in runs]
    heads = [f"{name}, {numbers['partitions']:,.0f}" for name, numbers in columns]
    lines = ["| partitions | " + " | ".join(heads) + " |", "|---|" + "---:|" * len(columns)]
    for key, label, unit in SCALING:
        if any(key in numbers for _, numbers in columns):
            cells = [number(numbers.get(key)) for _, numbers in columns]
            lines.append(f"| {label}, {unit} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def workers_table(found: list[dict[str, float]]) -> str:
    """One column per number of workers."""
    heads = [f"{numbers['workers']:.0f} worker{'s' * (numbers['workers'] > 1)}" for numbers in found]
    lines = ["| | " + " | ".join(heads) + " |", "|---|" + "---:|" * len(found)]
    for key, label, unit in WORKER_ROWS:
        cells = [number(numbers.get(key)) for numbers in found]
        lines.append(f"| {label}, {unit} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def misses(compared: list[Compared], reasons: dict[str, str]) -> str:
    """Every goal that was missed, with its reason."""
    missed = [line for line in compared if line.verdict not in ("", "goal")]
    if not missed:
        return "Every goal is reached."
    return "\n".join(
        f"* **{line.row.label}** ({line.ratio:.2g}x): {reasons.get(line.row.key, 'not explained yet')}"
        for line in missed
    )


def latency_table(compared: list[Compared]) -> str:
    """One line per workload and rate: p50, p99 and p99.9 of both, and their ratios."""
    lines = [
        "| | Runnel p50 | p99 | p99.9 | Kafka p50 | p99 | p99.9 | ratio p50 | p99 | p99.9 |",
        "|---|" + "---:|" * 9,
    ]
    for first in range(0, len(compared), 3):
        three = compared[first : first + 3]
        label = three[0].row.label.rpartition(", ")[0]
        cells = [number(line.ours) for line in three] + [number(line.theirs) for line in three]
        cells += [f"{line.ratio:.2g}x" if line.ratio is not None else "–" for line in three]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def write(results: dict[str, Any], docs: Path, reasons_path: Path) -> list[Compared]:
    """Write page and charts; returns the comparison."""
    compared = compare(results["rounds"], "Runnel", "Kafka")
    latencies = compare(results["rounds"], "Runnel", "Kafka", LATENCY_ROWS)
    reasons = tomllib.loads(reasons_path.read_text())["miss"] if reasons_path.exists() else {}
    folder = docs / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "advantage.svg").write_text(charts.advantage(compared))
    run = results["run"]
    head = HEAD.format(
        version=VERSION,
        rounds=run["rounds"],
        window=run["window_s"],
        limit=run["warm_up_s"],
        length=SHORT_RUN if run["is_quick"] else "",
    )
    sections = [
        head.rstrip(),
        table(compared),
        "![times better than Apache Kafka](bench/advantage.svg)",
        "## Latency",
        LATENCY,
        latency_table(latencies),
        "## Goals missed",
        misses(compared, reasons),
    ]
    if results["partitions"]:
        sections += _scaling_sections(results["partitions"], folder)
    if results["http"]:
        sections += _http_sections(results["http"], reasons)
    if results["workers"]:
        sections += ["## Workers of one host", WORKERS, workers_table(results["workers"])]
    sections += ["## Settings", _settings(results), "## Warm-up", warm_up_table(results["warm_up"])]
    (docs / "BENCHMARKS.md").write_text("\n\n".join(sections) + "\n")
    return compared


def _http_sections(found: dict[str, Any], reasons: dict[str, str]) -> list[str]:
    """Workloads over HTTP beside the native protocol, and why a floor is missed."""
    rounds = found["rounds"]
    text = http_table.TEXT.format(**found["run"], topic="{topic}")
    sections = ["## HTTP", text, http_table.http_table(rounds)]
    if missed := http_table.http_misses(rounds, reasons):
        sections += ["Floors missed:", missed]
    return [*sections, warm_up_table(found["warm_up"])]


def warm_up_table(warm_ups: dict[str, dict[str, str]]) -> str:
    """How long each workload of each broker was warmed up, and whether it became steady."""
    systems = list(warm_ups)
    workloads = list(dict.fromkeys(name for system in systems for name in warm_ups[system]))
    lines = ["| workload | " + " | ".join(systems) + " |", "|---" * (len(systems) + 1) + "|"]
    for workload in workloads:
        cells = [warm_ups[system].get(workload, "–") for system in systems]
        lines.append(f"| {workload} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _scaling_sections(partitions: dict[str, list[dict[str, float]]], folder: Path) -> list[str]:
    sections = ["## Many partitions on one node", scaling_table(partitions)]
    for key, label, unit in SCALING:
        if key in CHARTED:
            series = {
                name: {int(numbers["partitions"]): numbers[key] for numbers in runs if key in numbers}
                for name, runs in partitions.items()
            }
            (folder / CHARTED[key]).write_text(charts.scaling(label, unit, series))
            sections.append(f"![{label}](bench/{CHARTED[key]})")
    return sections


def _settings(results: dict[str, Any]) -> str:
    lines = [f"* {name}: {text}" for name, text in results["settings"].items()]
    return "\n".join(lines)
