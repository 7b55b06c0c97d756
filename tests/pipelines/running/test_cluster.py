"""Pipelines on a real Spark cluster, whose executors and drivers die in the middle of the work."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from runnel.testing import Broker
from tests.pipelines.running import copy_topic
from tools.spark_cluster import Cluster, ending_with_us

PARTITIONS = 2
RECORDS = 3000

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class Driver:
    """A process of its own that copies a topic on the cluster."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def lines_to(self, beginning: str) -> list[str]:
        """What it says until a line begins with these words."""
        assert self._process.stdout is not None
        lines = []
        for line in self._process.stdout:
            lines.append(line.strip())
            if line.startswith(beginning):
                return lines
        raise AssertionError(f"the driver ended with {self._process.wait()} after {lines}")

    def wait_for_batches(self, count: int) -> int:
        """Wait until it has finished so many more; the id of the last."""
        last = ""
        for _ in range(count):
            last = self.lines_to("batch ")[-1]
        return int(last.split()[1])

    def kill(self) -> None:
        """Python and Java at once."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def end(self) -> int:
        """Ask it to stop, as a supervisor would; its exit code."""
        self._process.send_signal(signal.SIGTERM)
        self.lines_to("copied ")
        return self._process.wait(60)


@contextmanager
def copying(cluster: Cluster, broker: Broker, checkpoint: Path, how: str) -> Iterator[Driver]:
    arguments = [cluster.master, broker.bootstrap_servers, "orders", "copies", str(checkpoint), how]
    process = subprocess.Popen(
        ending_with_us(sys.executable, copy_topic.__file__, *arguments),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield Driver(process)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def produce(broker: Broker, count: int) -> Counter[bytes]:
    """Records with a value of their own each."""
    with broker.client() as client:
        for topic in ("orders", "copies"):
            client.create_topic(topic, partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5})
    values = [f"order {number}".encode() for number in range(count)]
    for number, value in enumerate(values):
        producer.produce("orders", value, str(number).encode(), partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(60) == 0
    return Counter(values)


def committed(broker: Broker, topic: str, count: int) -> Counter[bytes]:
    """The values that readers of committed records see: so many, and whatever comes after them."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "check",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    seen: Counter[bytes] = Counter()
    ended: set[int] = set()
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        deadline = time.monotonic() + 60
        # An end counts only while all are there: before that, an open transaction may still commit.
        while (seen.total() < count or len(ended) < PARTITIONS) and time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error():
                ended.add(message.partition())
            else:
                ended.discard(message.partition())
                seen[message.value()] += 1
    finally:
        consumer.close()
    return seen


def kill_an_executor(cluster: Cluster) -> None:
    victim = cluster.executors()[0]
    os.kill(victim, signal.SIGKILL)
    while victim in cluster.executors():
        time.sleep(0.05)


def test_every_record_arrives_once_though_an_executor_and_the_driver_die(cluster, runnel, tmp_path):
    produced = produce(runnel, RECORDS)
    checkpoint = tmp_path / "checkpoint"
    with copying(cluster, runnel, checkpoint, "continuous") as driver:
        driver.wait_for_batches(1)
        kill_an_executor(cluster)
        before = driver.wait_for_batches(2)
        driver.kill()
    with copying(cluster, runnel, checkpoint, "continuous") as driver:
        assert driver.wait_for_batches(1) in (before, before + 1, before + 2)
        assert committed(runnel, "copies", RECORDS) == produced
        assert driver.end() == 0


PIPELINE = """
name: louder
sources:
  orders:
    topic: orders
    format: string
    start: earliest
    on-malformed: skip
steps:
  louder:
    sql: SELECT upper(value) AS value FROM orders
sinks:
  copies:
    from: louder
    topic: copies
    value: value
"""


def test_a_declared_pipeline_runs_on_it(cluster, runnel, tmp_path):
    produced = produce(runnel, 1000)
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE)
    where = ["-b", runnel.bootstrap_servers, "--master", cluster.master, "--checkpoint", str(tmp_path / "c")]
    settings = [f"--set={key}={value}" for key, value in copy_topic.SETTINGS.items()]
    command = [sys.executable, "-m", "runnel.server.cli", "pipeline", "run", str(file), "--once", "--json"]
    ended = subprocess.run([*command, *where, *settings], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert [query["records"] for query in json.loads(ended.stdout)["queries"]] == [1000]
    expected = Counter({value.upper(): count for value, count in produced.items()})
    assert committed(runnel, "copies", 1000) == expected
