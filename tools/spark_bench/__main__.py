"""The Spark benchmarks of `make bench`; writes docs/BENCHMARKS_SPARK.md."""

import argparse
import json
import platform
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runnel.client import SyncClient
from runnel.pipelines.session import spark_session
from tools.broker_process import BrokerProcess
from tools.fetch.programs import Unavailable
from tools.processes import unwind_when_ended
from tools.spark_bench import page
from tools.spark_bench.connector import VERSION, connector_jars
from tools.spark_bench.measures import PARTITIONS, VALUE_BYTES, Cost, Stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent.parent
MASTER = "local[2]"
DRIVER_MEMORY = "2g"
GROWTH = (1, 4, 16)


def main() -> int:
    options = options_of(sys.argv[1:])
    unwind_when_ended()
    try:
        jars = connector_jars()
    except Unavailable as reason:
        print(f"Spark is skipped: {reason}")
        return 0
    settings = {
        "spark.jars": ",".join(map(str, jars)),
        "spark.driver.memory": DRIVER_MEMORY,
    }
    with (
        tempfile.TemporaryDirectory(prefix="runnel-spark-bench-") as folder,
        BrokerProcess(Path(folder) / "data") as broker,
        spark_session("bench", master=MASTER, settings=settings) as session,
    ):
        stage = Stage(session, broker.bootstrap, jvm_pid(session), broker.pid)
        rounds = compare(stage, options.records, options.rounds)
        growth = grow(stage, options.records // 4, options.rounds)
        results = {
            "settings": {
                "spark": session.version,
                "connector": VERSION,
                "records": options.records,
                "value": VALUE_BYTES,
                "partitions": PARTITIONS,
                "master": MASTER,
                "driver_memory": DRIVER_MEMORY,
                "machine": f"{platform.machine()}, Python {platform.python_version()}",
            },
            "rounds": rounds,
            "growth": growth,
        }
    text = page.write(results)
    if not options.quick:
        (ROOT / "docs" / "bench" / "spark.json").write_text(json.dumps(results, indent=1) + "\n")
        (ROOT / "docs" / "BENCHMARKS_SPARK.md").write_text(text)
    print(text)
    return 0


def jvm_pid(session: "SparkSession") -> int:
    """The JVM that runs the tasks; the Python workers are its children."""
    gateway: Any = session.sparkContext._gateway
    return int(gateway.proc.pid)


def options_of(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("--quick", action="store_true", help="one short round, without writing the page")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=1_000_000)
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.records = 1, 200_000
    return options


def compare(stage: Stage, records: int, rounds: int) -> dict[str, dict[str, list[dict[str, float]]]]:
    """Each job with both formats, in alternating order."""
    fill(stage, "plain", records)
    fill(stage, "packed", records, **{"kafka.compression.type": "lz4"})
    jobs: dict[str, dict[str, Callable[[], Cost]]] = {
        "read": reads(stage, "plain", records),
        "read lz4": reads(stage, "packed", records),
        "write": {
            "runnel": lambda: write(stage, "runnel", records, delivery="at-least-once"),
            "kafka": lambda: write(stage, "kafka", records),
        },
        "write exactly once": {
            "runnel": lambda: write(stage, "runnel", records, delivery="exactly-once"),
        },
    }
    costs: dict[str, dict[str, list[dict[str, float]]]] = {}
    for number in range(-1, rounds):
        # The first round warms up Python workers, the JIT compiler and the page cache.
        print("warming up" if number < 0 else f"round {number + 1} of {rounds}", flush=True)
        for job, formats in jobs.items():
            for name in sorted(formats, reverse=number % 2 == 0):
                cost = formats[name]()
                if number >= 0:
                    costs.setdefault(job, {}).setdefault(name, []).append(asdict(cost))
                    print(f"  {job}, {name}: {cost.seconds:.2f} s, CPU {cost.spark_cpu_s:.2f} s", flush=True)
    return costs


def reads(stage: Stage, topic: str, records: int) -> dict[str, Callable[[], Cost]]:
    return {name: partial(stage.read, name, topic, records) for name in ("runnel", "kafka")}


def grow(stage: Stage, unit: int, rounds: int) -> list[dict[str, Any]]:
    """Read increasing amounts of data."""
    steps = []
    for factor in GROWTH:
        records = unit * factor
        topic = f"grown-{factor}"
        fill(stage, topic, records)
        step: dict[str, Any] = {"records": records, "runnel": [], "kafka": []}
        for number in range(max(1, rounds // 2)):
            for name in ("runnel", "kafka") if number % 2 else ("kafka", "runnel"):
                step[name].append(asdict(stage.read(name, topic, records)))
        print(f"  {records:,} records: done", flush=True)
        steps.append(step)
    return steps


def fill(stage: Stage, topic: str, records: int, **options: str) -> None:
    with SyncClient(stage.bootstrap) as client:
        client.create_topic(topic, partitions=PARTITIONS)
    stage.write("kafka", topic, records, **options)


def write(stage: Stage, format: str, records: int, **options: str) -> Cost:
    """Write to a new topic, so that all rounds are alike."""
    with SyncClient(stage.bootstrap) as client:
        client.create_topic("written", partitions=PARTITIONS)
        try:
            return stage.write(format, "written", records, **options)
        finally:
            client.delete_topic("written")


if __name__ == "__main__":
    sys.exit(main())
