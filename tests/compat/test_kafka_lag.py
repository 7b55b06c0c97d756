"""`runnel group` shows the lag of groups of Apache Kafka, by record time."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.librdkafka import TIMEOUT_S
from tools.kafka import node

pytestmark = [pytest.mark.java, pytest.mark.long]

TOPIC, GROUP = "orders", "readers"
HOUR_MS = 3_600_000


@pytest.fixture
def bootstrap(kafka_jars: object, tmp_path: Path) -> Iterator[str]:
    """The address of a node of Apache Kafka."""
    running = node.start(tmp_path, node.ONE_NODE, flags=node.QUICK_START)
    try:
        yield running.bootstrap
    finally:
        running.stop()


def runnel(bootstrap: str, *arguments: str) -> Any:
    command = [
        sys.executable,
        "-m",
        "runnel.server.cli",
        *arguments,
        "--json",
        "--bootstrap-server",
        bootstrap,
    ]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)


def test_the_lag_of_a_group(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(TOPIC, 2, 1, config={"retention.ms": "-1"})
    admin.create_topics([topic])[TOPIC].result(TIMEOUT_S)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "tx"})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for partition in (0, 1):
        for number in range(5):
            producer.produce(TOPIC, b"v", partition=partition, timestamp=1_700_000_000_000 + number * HOUR_MS)
        producer.flush(TIMEOUT_S)
    producer.commit_transaction(TIMEOUT_S)
    # Of one partition everything is read but the marker of the transaction.
    for partition, offset in ((0, 3), (1, 5)):
        of_topic = ("--topic", f"{TOPIC}:{partition}", "--to-offset", str(offset))
        runnel(bootstrap, "group", "reset-offsets", GROUP, *of_topic, "--execute")
    view = runnel(bootstrap, "group", "describe", GROUP)
    behind, caught_up = view["partitions"]
    assert (view["lag"], view["lag_by"], view["verdict"]) == (4, "record time", None)
    assert (behind["lag"], behind["reason"]) == (3, "by record time")
    assert behind["lag_seconds"] > 100 * 3600
    assert (caught_up["lag"], caught_up["lag_seconds"]) == (1, 0)
    [row] = runnel(bootstrap, "group", "list")
    assert (row["group"], row["lag"], row["lag_seconds"] > 0) == (GROUP, 4, True)
