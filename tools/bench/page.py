"""docs/BENCHMARKS.md: table, charts, settings, and why a goal was missed."""

import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from tools.bench import charts
from tools.bench.table import Compared, compare

HEAD = """# Benchmarks

Runnel and Apache Kafka 4.3 on one machine, alternating in one run; medians over {rounds} rounds, and their
ratio. Written by `make bench` from [bench/latest.json](bench/latest.json), which holds every single
measurement. Times and rates on a shared machine wander: trust the ratios and the CPU figures.

Both keep their defaults: records are acknowledged from the page cache, neither calls fsync. The rows "acks
wait for the disk" are the exception: Runnel with `flush.policy=commit` (one fdatasync for all who wait),
Kafka with `flush.messages=1`.
"""

SCALING = [
    ("create_s", "creating them", "s"),
    ("memory_mb", "memory after creating", "MB"),
    ("memory_loaded_mb", "memory after load", "MB"),
    ("produce_cpu_us", "broker CPU per small produce", "µs"),
    ("metadata_one_topic_us", "Metadata for one topic, p50", "µs"),
    ("stop_s", "clean stop", "s"),
    ("restart_s", "start to first answer after it", "s"),
    ("memory_restarted_mb", "memory after restart", "MB"),
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


def misses(compared: list[Compared], reasons: dict[str, str]) -> str:
    """Every goal that was missed, with its reason."""
    missed = [line for line in compared if line.verdict not in ("", "goal")]
    if not missed:
        return "Every goal is reached."
    return "\n".join(
        f"* **{line.row.label}** ({line.ratio:.2g}x): {reasons.get(line.row.key, 'not explained yet')}"
        for line in missed
    )


def write(results: dict[str, Any], docs: Path, reasons_path: Path) -> list[Compared]:
    """Write page and charts; returns the comparison."""
    compared = compare(results["rounds"], "Runnel", "Kafka")
    reasons = tomllib.loads(reasons_path.read_text())["miss"] if reasons_path.exists() else {}
    folder = docs / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "advantage.svg").write_text(charts.advantage(compared))
    sections = [
        HEAD.format(rounds=_rounds(results["rounds"]["Runnel"])).rstrip(),
        table(compared),
        "![times better than Apache Kafka](bench/advantage.svg)",
        "## Goals missed",
        misses(compared, reasons),
    ]
    if results["partitions"]:
        sections += _scaling_sections(results["partitions"], folder)
    sections += ["## Settings", _settings(results)]
    (docs / "BENCHMARKS.md").write_text("\n\n".join(sections) + "\n")
    return compared


def _scaling_sections(partitions: dict[str, list[dict[str, float]]], folder: Path) -> list[str]:
    sections = ["## With many partitions on one node", scaling_table(partitions)]
    for key, label, unit in SCALING:
        if key in CHARTED:
            series = {
                name: {int(numbers["partitions"]): numbers[key] for numbers in runs if key in numbers}
                for name, runs in partitions.items()
            }
            (folder / CHARTED[key]).write_text(charts.scaling(label, unit, series))
            sections.append(f"![{label}](bench/{CHARTED[key]})")
    return sections


def _rounds(rounds: list[dict[str, float]]) -> int:
    """How often a row was measured; what was measured in a later run stands in rounds of its own."""
    return max(Counter(key for numbers in rounds for key in numbers).values(), default=0)


def _settings(results: dict[str, Any]) -> str:
    lines = [f"* {name}: {text}" for name, text in results["settings"].items()]
    return "\n".join(lines)
