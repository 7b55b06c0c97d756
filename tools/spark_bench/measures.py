"""Measures reads and writes of topics with Spark: elapsed and CPU time."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tools.processes import cpu_seconds, tree_cpu_seconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 4
VALUE_BYTES = 200


@dataclass(frozen=True, slots=True)
class Cost:
    """Elapsed time of a job, and the CPU times of Spark (with its Python workers) and of the broker."""

    seconds: float
    spark_cpu_s: float
    broker_cpu_s: float


@dataclass(frozen=True, slots=True)
class Stage:
    """A running session and broker."""

    session: "SparkSession"
    bootstrap: str
    spark_pid: int
    broker_pid: int

    def cost_of(self, job: Callable[[], object]) -> Cost:
        began, spark, broker = (
            time.monotonic(),
            tree_cpu_seconds(self.spark_pid),
            cpu_seconds(self.broker_pid),
        )
        job()
        return Cost(
            time.monotonic() - began,
            tree_cpu_seconds(self.spark_pid) - spark,
            cpu_seconds(self.broker_pid) - broker,
        )

    def read(self, format: str, topic: str, records: int) -> Cost:
        """Aggregate every column of every record, so that none can be pruned."""
        frame = (
            self.session.read.format(format)
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", topic)
            .option("includeHeaders", "false")
            .load()
            .selectExpr(
                "count(*) AS records",
                "sum(length(key)) + sum(length(value)) AS bytes",
                "max(offset) AS last",
                "max(timestamp) AS newest",
            )
        )

        def job() -> None:
            found = frame.collect()[0]["records"]
            if found != records:
                raise RuntimeError(f"{format} read {found} of {records} records")

        return self.cost_of(job)

    def write(self, format: str, topic: str, records: int, **options: str) -> Cost:
        writer = (
            rows(self.session, records)
            .write.format(format)
            .mode("append")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("topic", topic)
            .options(**options)
        )
        return self.cost_of(writer.save)


def rows(session: "SparkSession", records: int) -> "DataFrame":
    """Records of equal size with distinct keys and values."""
    return session.range(0, records, 1, PARTITIONS).selectExpr(
        "cast(id AS string) AS key",
        f"rpad(concat(sha2(cast(id AS string), 256), cast(id AS string)), {VALUE_BYTES}, 'runnel') AS value",
    )
