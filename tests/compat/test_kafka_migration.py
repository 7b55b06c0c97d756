"""A node of Apache Kafka becomes one of Runnel and one of Kafka again, on the same data directory.

`make crash ONLY=migration` does this to a cluster under load.
"""

import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.librdkafka import TIMEOUT_S, consumer
from tools.broker_process import free_port
from tools.cluster.nodes import Blueprint, ClusterNode, Place, RunnelNode, SmallKafkaNode, new_cluster_id

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.slow, pytest.mark.usefixtures("kafka_jars")]

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
TOPIC, GROUP = "orders", "readers"
IDEMPOTENT, TRANSACTIONAL = 0, 1
"""The partition of each producer."""
BATCH = 20

Seen = tuple[dict[int, list[tuple[int, bytes, tuple[int, int]]]], int]
"""Partition → offset, value and timestamp of its committed records; and the group's committed offset."""


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[ClusterNode]]:
    """The same node three times, none of them started: as Kafka, as Runnel, as Kafka."""
    place = Place(1, "127.0.0.1", tmp_path, tmp_path / "data", [], free_port(), free_port())
    cluster_id = new_cluster_id()
    voters = {1: f"127.0.0.1:{place.controller_port}"}
    blueprint = Blueprint(voters, {"cluster.id": cluster_id, **SETTINGS}, cluster_id)
    made: list[ClusterNode] = [
        kind(place, blueprint) for kind in (SmallKafkaNode, RunnelNode, SmallKafkaNode)
    ]
    yield made
    for node in made:
        node.kill()


def test_producers_transactions_and_offsets_go_on(nodes: list[ClusterNode]) -> None:
    nodes[0].start()
    bootstrap = nodes[0].bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(TIMEOUT_S)
    # Both live through all three: the node must know their ids, epochs and sequences.
    idempotent = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    transactional = Producer({"bootstrap.servers": bootstrap, "transactional.id": "copier"})
    transactional.init_transactions(TIMEOUT_S)
    for number, (node, other) in enumerate(pairwise(nodes)):
        send(idempotent, IDEMPOTENT, [b"%d" % value for value in range(number * BATCH, (number + 1) * BATCH)])
        commit_offset(bootstrap, (number + 1) * BATCH)
        begin(transactional, b"aborted")
        transactional.abort_transaction(TIMEOUT_S)
        begin(transactional, b"committed in %d" % number)
        transactional.commit_transaction(TIMEOUT_S)
        # Open while the node is exchanged.
        begin(transactional, b"begun in %d" % number)
        before = look(bootstrap)
        if number == 0:
            check_refused(other)
        # A JVM reports the signal that ended it.
        assert node.stop() in (0, 143)
        other.start()
        assert look(bootstrap) == before
        transactional.commit_transaction(TIMEOUT_S)
    send(idempotent, IDEMPOTENT, [b"last"])
    records, offset = look(bootstrap)
    values = {partition: [value for _, value, _ in seen] for partition, seen in records.items()}
    assert values[IDEMPOTENT] == [*(b"%d" % value for value in range(2 * BATCH)), b"last"]
    assert values[TRANSACTIONAL] == [
        text % number for number in (0, 1) for text in (b"committed in %d", b"begun in %d")
    ]
    assert offset == 2 * BATCH


def check_refused(other: ClusterNode) -> None:
    """Runnel does not open a directory that Kafka uses. Controllers of Kafka do not look at the lock."""
    done = subprocess.run(other.command(), capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode != 0
    assert "another broker is using the data directory" in done.stderr


def begin(producer: Producer, value: bytes) -> None:
    producer.begin_transaction()
    send(producer, TRANSACTIONAL, [value])


def send(producer: Producer, partition: int, values: list[bytes]) -> None:
    """Produce, and wait for the acknowledgements."""
    errors: list[KafkaError] = []
    for value in values:
        producer.produce(TOPIC, value, partition=partition, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert errors == [None] * len(values)


def commit_offset(bootstrap: str, offset: int) -> None:
    with consumer(bootstrap, GROUP) as member:
        member.commit(offsets=[TopicPartition(TOPIC, IDEMPOTENT, offset)], asynchronous=False)


def look(bootstrap: str) -> Seen:
    """All that a consumer with read_committed sees, up to the last stable offsets."""
    records: dict[int, list[tuple[int, bytes, tuple[int, int]]]] = {IDEMPOTENT: [], TRANSACTIONAL: []}
    options = {"isolation_level": "read_committed", "enable_partition_eof": True}
    with consumer(bootstrap, GROUP, **options) as reader:
        reader.assign([TopicPartition(TOPIC, partition, 0) for partition in records])
        at_end: set[int] = set()
        while len(at_end) < len(records):
            message = reader.poll(TIMEOUT_S)
            assert message is not None, "a partition is not read to its end"
            error = message.error()
            if error is None:
                records[message.partition()].append((message.offset(), message.value(), message.timestamp()))
            elif error.code() == KafkaError._PARTITION_EOF:
                at_end.add(message.partition())
            else:
                raise KafkaException(error)
        (committed,) = reader.committed([TopicPartition(TOPIC, IDEMPOTENT)], TIMEOUT_S)
    return records, committed.offset
