"""A copy from topic to topic by Spark while everybody is killed, and the reckoning at the end."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import IsolationLevel
from confluent_kafka.admin import AdminClient, NewTopic

from tools.broker_process import BrokerProcess
from tools.crash.chain.book import Book, Log, original
from tools.crash.chain.feed import PlainFeeder, whole_log
from tools.crash.chain.story import ends, open_transactions
from tools.crash.ledger import Place
from tools.crash.spark.job import TRANSACTION_TIMEOUT_MS
from tools.crash.story import Note, kill, silent
from tools.spark_cluster import Cluster, running_cluster

INPUT, OUTPUT = "spark-in", "spark-out"
PARTITIONS = 3
PATIENCE_S = 300.0
REST_S = 2.0
VICTIMS = {"executor": 0.3, "python worker": 0.25, "driver": 0.2, "broker": 0.25}
SETTINGS = {
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}


@dataclass(slots=True)
class SparkOutcome:
    """How the story ended."""

    kills: Counter[str] = field(default_factory=Counter)
    drivers: int = 0
    inputs: int = 0
    outputs: int = 0
    undone: int = 0
    """Records that were written and never shown."""
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)


class Driver:
    """The job's driver, started again whenever it has ended."""

    def __init__(self, arguments: list[str], log: Path) -> None:
        self._command = [sys.executable, "-m", "tools.crash.spark.job", *arguments]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._born_s = 0.0
        self.lives = 0

    def revive(self) -> None:
        """Start it unless it runs; one that ends at once is not started in every moment."""
        if self._process is not None:
            if self._process.poll() is None or time.monotonic() < self._born_s + REST_S:
                return
            self.kill()
        self._born_s = time.monotonic()
        self.lives += 1
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        """kill -9 of Python and Java at once."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


class CalmFeeder(PlainFeeder):
    """Feeds at a pace that a job can follow which is killed all the time."""

    def feed(self) -> None:
        super().feed()
        time.sleep(0.4)


class Copying:
    """Everybody who takes part."""

    def __init__(self, broker: BrokerProcess, cluster: Cluster, folder: Path, seed: int, note: Note) -> None:
        self.broker = broker
        self.cluster = cluster
        self.note = note
        self.book = Book()
        self.outcome = SparkOutcome(violations=self.book.violations)
        self.chance = random.Random(seed)
        self.inputs: list[Place] = [(INPUT, number) for number in range(PARTITIONS)]
        self.outputs: list[Place] = [(OUTPUT, number) for number in range(PARTITIONS)]
        make_topics(broker.bootstrap)
        self.feeder = CalmFeeder("p", broker.bootstrap, INPUT, seed, self.book)
        arguments = [cluster.master, broker.bootstrap, INPUT, OUTPUT, str(folder / "checkpoint")]
        self.driver = Driver(arguments, folder / "driver.log")

    def play(self, kills: int) -> None:
        """Load, kills, rest."""
        self.feeder.start()
        self.wait_for_output(1)
        while self.outcome.kills.total() < kills and not self.book.violations:
            self.wait(self.chance.uniform(0.1, 4.0))
            # Most of the time somebody is in the middle of a batch; now and then, of a start.
            if self.chance.random() < 0.75:
                self.wait_for_output(self.shown() + 1)
            self.strike()
            told = ", ".join(f"{count} {name}" for name, count in sorted(self.outcome.kills.items()))
            self.note(f"killed {told}: {self.feeder.sent} sent, {self.shown()} shown")
        self.feeder.end()
        if not self.book.violations:
            self.come_to_rest()
        self.outcome.drivers = self.driver.lives

    def strike(self) -> None:
        victim = self.chance.choices(list(VICTIMS), list(VICTIMS.values()))[0]
        if victim == "driver":
            self.driver.kill()
        elif victim == "broker":
            kill(self.broker, self.chance)
            time.sleep(self.chance.uniform(0, 2))
            self.broker.start()
        elif not self.kill_one(
            self.cluster.executors() if victim == "executor" else self.cluster.python_workers()
        ):
            return
        self.outcome.kills[victim] += 1

    def kill_one(self, pids: list[int]) -> bool:
        if not pids:
            self.wait(0.5)
            return False
        with suppress(ProcessLookupError):
            os.kill(self.chance.choice(sorted(pids)), signal.SIGKILL)
        return True

    def wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.driver.revive()
            time.sleep(0.05)

    def shown(self) -> int:
        """How far readers of committed records can read the output, markers included."""
        return sum(ends(self.broker.bootstrap, self.outputs, IsolationLevel.READ_COMMITTED).values())

    def wait_for_output(self, count: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self.shown() < count:
            if time.monotonic() > deadline:
                self.book.accuse(f"stuck: the output does not grow beyond {self.shown()}")
                return
            self.wait(0.2)

    def come_to_rest(self) -> None:
        """All input is copied, everybody leaves, and nothing stays open."""
        self.note("no more kills: the rest is copied")
        inputs = whole_log(self.broker.bootstrap, self.inputs, "read_committed")
        wanted = sum(map(len, inputs.values()))
        deadline = time.monotonic() + PATIENCE_S
        while sum(map(len, self.read_output().values())) < wanted:
            if time.monotonic() > deadline:
                self.book.accuse(f"stuck: {wanted} records in, and not all of them out")
                break
            self.wait(1.0)
        # Anything that is there in spite of its doubles would come now.
        self.wait(5.0)
        self.driver.kill()
        self.wait_until_closed()
        self.reckon(inputs)
        if self.broker.stop() != 0:
            self.book.accuse("a clean stop ended with an error")
        self.broker.start()
        self.reckon(inputs)

    def read_output(self) -> Log:
        return whole_log(self.broker.bootstrap, self.outputs, "read_committed")

    def wait_until_closed(self) -> None:
        deadline = time.monotonic() + 2 * TRANSACTION_TIMEOUT_MS / 1000
        while left := asyncio.run(open_transactions(self.broker.bootstrap)):
            if time.monotonic() > deadline:
                self.book.accuse(f"transactions are left open: {left}")
                return
            time.sleep(0.5)

    def reckon(self, inputs: Log) -> None:
        outputs = self.read_output()
        everything = whole_log(self.broker.bootstrap, self.outputs, "read_uncommitted")
        for complaint in differences(values(inputs), values(outputs)):
            self.book.accuse(complaint)
        self.book.judge_acknowledged(self.feeder.acknowledged, inputs)
        self.outcome.inputs = sum(map(len, inputs.values()))
        self.outcome.outputs = sum(map(len, outputs.values()))
        self.outcome.undone = sum(map(len, everything.values())) - self.outcome.outputs


def values(log: Log) -> Counter[bytes]:
    """Every value of a log, without its padding, and how often it is there."""
    return Counter(original(value) for records in log.values() for _, value in records)


def differences(inputs: Mapping[bytes, int], outputs: Mapping[bytes, int]) -> list[str]:
    """What is not in the output as often as in the input, each kind with a few examples."""
    lost = [value for value, count in inputs.items() if outputs.get(value, 0) < count]
    doubled = [value for value, count in outputs.items() if value in inputs and count > inputs[value]]
    strange = [value for value in outputs if value not in inputs]
    return [
        f"{len(found)} records {kind}: {sorted(found)[:5]}"
        for kind, found in (("lost", lost), ("doubled", doubled), ("from nowhere", strange))
        if found
    ]


def copying(folder: Path, kills: int, seed: int = 1, note: Note = silent) -> SparkOutcome:
    """Play the story from an empty broker to its reckoning."""
    began = time.monotonic()
    broker = BrokerProcess(folder / "data", SETTINGS, folder / "broker.log")
    try:
        broker.start()
        with running_cluster(folder / "cluster") as cluster:
            story = Copying(broker, cluster, folder, seed, note)
            try:
                story.play(kills)
            finally:
                story.driver.kill()
    finally:
        broker.kill()
    story.outcome.seconds = time.monotonic() - began
    return story.outcome


def make_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (INPUT, OUTPUT)]).values():
        future.result(PATIENCE_S)
