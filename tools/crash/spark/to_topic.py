"""Topic to topic: a job that writes slowly, so that kills fall inside its transactions."""

import asyncio
import sys
import time
from collections import Counter
from pathlib import Path

from confluent_kafka import IsolationLevel

from tools.crash.chain.run import ends, open_transactions
from tools.crash.chain.traffic import read_partitions
from tools.crash.chain.verification import Log, original
from tools.crash.ledger import Partition
from tools.crash.spark.copying_job import TRANSACTION_TIMEOUT_MS
from tools.crash.spark.run import INPUT, PARTITIONS

OUTPUT = "spark-out"
PLACES: list[Partition] = [(OUTPUT, number) for number in range(PARTITIONS)]


class CopyToTopic:
    """The copy in a second topic, as readers of committed records see it."""

    def __init__(self, bootstrap: str, master: str, folder: Path) -> None:
        self._bootstrap = bootstrap
        self.topics = [OUTPUT]
        arguments = [master, bootstrap, INPUT, OUTPUT, str(folder / "checkpoint")]
        self.command = [sys.executable, "-m", "tools.crash.spark.copying_job", *arguments]

    def shown(self) -> int:
        """How far readers of committed records can read, markers included."""
        return sum(ends(self._bootstrap, PLACES, IsolationLevel.READ_COMMITTED).values())

    def wanted(self, inputs: Log) -> Counter[bytes]:
        return values(inputs)

    def found(self) -> Counter[bytes]:
        return values(read_partitions(self._bootstrap, PLACES, "read_committed"))

    def undone(self) -> int:
        everything = read_partitions(self._bootstrap, PLACES, "read_uncommitted")
        return sum(map(len, everything.values())) - self.found().total()

    def wait_until_closed(self) -> str | None:
        deadline = time.monotonic() + 2 * TRANSACTION_TIMEOUT_MS / 1000
        while left := asyncio.run(open_transactions(self._bootstrap)):
            if time.monotonic() > deadline:
                return f"transactions are left open: {left}"
            time.sleep(0.5)
        return None

    def audit_options(self, count: int) -> list[str]:
        return ["--topic", OUTPUT, "--expect", f"{OUTPUT}={count}"]


def values(log: Log) -> Counter[bytes]:
    """Every value of a log, without its padding, and how often it occurs."""
    return Counter(original(value) for records in log.values() for _, value in records)
