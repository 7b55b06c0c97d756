"""Renders docs/BENCHMARKS_SPARK.md, the comparison with Spark's Kafka connector."""

import statistics
from typing import Any

HEAD = """# Spark benchmarks

The format "runnel" compared with Spark's JVM Kafka connector: same broker (Runnel), same warmed-up session
of Spark {spark}, {records:,} records of {value} bytes in {partitions} partitions, measured alternately;
medians of {rounds} rounds. Written by `make bench` from [bench/spark.json](bench/spark.json), which contains
every measurement. Times vary on a shared machine; the ratios and the CPU times are more reliable.
"""
SETTINGS = """* {machine}
* master {master}, driver memory {driver_memory}, connector {connector}"""
TABLE = ["", "runnel, s", "connector, s", "speed-up"]
TABLE += ["Spark CPU, s", "connector", "broker CPU, s", "connector", "result"]
GROWTH = ["records", "runnel, s", "runnel, CPU s", "connector, s", "connector, CPU s"]
ROWS: list[tuple[str, str, str | None, str, float | None, float]] = [
    ("read", "runnel", "kafka", "read", 1.5, 1.0),
    ("read lz4", "runnel", "kafka", "read, lz4", 1.5, 1.0),
    ("write", "runnel", "kafka", "write, at-least-once", None, 0.0),
    ("write exactly once", "runnel", None, "write, exactly-once", None, 0.0),
]


def write(results: dict[str, Any]) -> str:
    rounds = results["rounds"]
    head = HEAD.format(rounds=len(next(iter(rounds.values()))["runnel"]), **results["settings"])
    return (
        "\n\n".join(
            [
                head.rstrip(),
                _table(rounds),
                "## Scaling",
                "Reading, per million records; fixed costs dominate the first row.",
                _growth(results["growth"]),
                "## Settings",
                SETTINGS.format(**results["settings"]),
            ]
        )
        + "\n"
    )


def _table(rounds: dict[str, Any]) -> str:
    lines = ["| " + " | ".join(TABLE) + " |", "|---|" + "---:|" * (len(TABLE) - 2) + "---|"]
    for key, ours, theirs, label, goal, floor in ROWS:
        if key not in rounds:
            continue
        mine = _medians(rounds[key][ours])
        other = _medians(rounds[key][theirs]) if theirs else None
        faster = other["seconds"] / mine["seconds"] if other else None
        result = ""
        if faster is not None and goal is not None:
            result = "goal" if faster >= goal else "floor" if faster >= floor else "**below the floor**"
        cells = [label, mine["seconds"], other and other["seconds"], faster]
        for part in ("spark_cpu_s", "broker_cpu_s"):
            cells += [mine[part], other and other[part]]
        lines.append("| " + " | ".join(map(_cell, [*cells, result])) + " |")
    return "\n".join(lines)


def _growth(growth: list[dict[str, Any]]) -> str:
    lines = ["| " + " | ".join(GROWTH) + " |", "|" + "---:|" * len(GROWTH)]
    for step in growth:
        millions = step["records"] / 1e6
        cells: list[Any] = [f"{step['records']:,}"]
        for name in ("runnel", "kafka"):
            cost = _medians(step[name])
            cells += [cost["seconds"] / millions, cost["spark_cpu_s"] / millions]
        lines.append("| " + " | ".join(map(_cell, cells)) + " |")
    return "\n".join(lines)


def _medians(costs: list[dict[str, float]]) -> dict[str, float]:
    return {key: statistics.median(cost[key] for cost in costs) for key in costs[0]}


def _cell(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:.2f}" if isinstance(value, float) else str(value)
