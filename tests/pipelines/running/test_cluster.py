"""A pipeline on a real Spark cluster, whose executors and drivers are killed in the middle of the work."""

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
from tests.conftest import QUICK_START
from tests.pipelines.running.test_stopping import figure
from tools.spark_cluster import Cluster, ending_with_us

PARTITIONS = 2
RECORDS = 3000
SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.driver.memory": "512m",
    # A killed executor costs an attempt; its task must get another one.
    "spark.task.maxFailures": "8",
    "spark.executor.extraJavaOptions": QUICK_START,
}
PIPELINE = """
name: louder
trigger: 200 ms
sources:
  orders:
    topic: orders
    format: string
    start: earliest
    on-malformed: skip
    records-per-batch: 500
steps:
  louder:
    sql: SELECT upper(value) AS value FROM orders
sinks:
  copies:
    from: louder
    topic: copies
    value: value
"""

pytestmark = [pytest.mark.long, pytest.mark.slow]


class Driver:
    """A process of its own that runs a pipeline on the cluster."""

    def __init__(self, process: "subprocess.Popen[str]", metrics: Path) -> None:
        self._process = process
        self._metrics = metrics

    def wait_for_batches(self, count: int) -> int:
        """Wait until it has finished so many more; the id of the last."""
        wanted = (figure(self._metrics, "batches_total") or 0) + count
        while (figure(self._metrics, "batches_total") or 0) < wanted:
            if self._process.poll() is not None:
                raise AssertionError(f"the driver ended with {self._process.returncode}")
            time.sleep(0.05)
        return int(figure(self._metrics, "last_batch_id") or 0)

    def kill(self) -> None:
        """Python and Java at once."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def end(self) -> dict[str, object]:
        """Ask it to stop, as a supervisor would; what it reports."""
        self._process.send_signal(signal.SIGTERM)
        out, _ = self._process.communicate(timeout=120)
        assert self._process.returncode == 0
        outcome: dict[str, object] = json.loads(out)
        return outcome


@contextmanager
def running_pipeline(cluster: Cluster, broker: Broker, folder: Path, metrics: Path) -> Iterator[Driver]:
    where = ["-b", broker.bootstrap_servers, "--master", cluster.master, "--checkpoint", str(folder / "c")]
    settings = [f"--set={key}={value}" for key, value in SETTINGS.items()]
    command = ["-m", "runnel.server.cli", "pipeline", "run", str(folder / "louder.yaml"), "--continuous"]
    process = subprocess.Popen(
        ending_with_us(
            sys.executable, *command, "--json", "--quiet", "--metrics", str(metrics), *where, *settings
        ),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield Driver(process, metrics)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        # Not read to its end: Spark's Python workers have a group of their own, and may keep it open.
        assert process.stdout is not None
        process.stdout.close()


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
    """The values for read_committed consumers: this number, and any later ones."""
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
    (tmp_path / "louder.yaml").write_text(PIPELINE)
    with running_pipeline(cluster, runnel, tmp_path, tmp_path / "first.prom") as driver:
        driver.wait_for_batches(1)
        kill_an_executor(cluster)
        before = driver.wait_for_batches(2)
        driver.kill()
    with running_pipeline(cluster, runnel, tmp_path, tmp_path / "second.prom") as driver:
        assert driver.wait_for_batches(1) in (before, before + 1, before + 2)
        expected = Counter({value.upper(): count for value, count in produced.items()})
        assert committed(runnel, "copies", RECORDS) == expected
        assert driver.end()["was_stopped"]
