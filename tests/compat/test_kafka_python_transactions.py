"""kafka-python: transactional writes, offset commits and fencing."""

from contextlib import closing

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from tests.compat.test_kafka_python import JOINING_POLL_MS, consumer, poll_until, send, take

TIMEOUT_S = 30


def a_producer(bootstrap: str, transactional_id: str) -> KafkaProducer:
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
    producer.init_transactions()
    return producer


def values(bootstrap: str, topic: str, isolation: str, count: int) -> list[bytes]:
    with consumer(bootstrap, None, isolation_level=isolation) as reader:
        reader.assign([TopicPartition(topic, 0)])
        return [record.value for record in take(reader, count)]


def wait_until_committed(member: KafkaConsumer, partition: TopicPartition, offset: int | None) -> None:
    # The marker of __consumer_offsets is written after the producer's commit is acknowledged.
    poll_until([member], lambda: member.committed(partition) == offset)


def test_read_committed_sees_complete_transactions(bootstrap, topic) -> None:
    with closing(a_producer(bootstrap, f"x-{topic}")) as producer:
        for value, end in (
            (b"a", producer.commit_transaction),
            (b"b", producer.abort_transaction),
            (b"c", producer.commit_transaction),
        ):
            producer.begin_transaction()
            producer.send(topic, value).get(TIMEOUT_S)
            end()
    assert values(bootstrap, topic, "read_committed", 2) == [b"a", b"c"]
    assert values(bootstrap, topic, "read_uncommitted", 3) == [b"a", b"b", b"c"]


def test_offsets_are_committed_with_the_transaction(bootstrap, topic, group) -> None:
    partition = TopicPartition(topic, 0)
    send(bootstrap, topic, [b"%d" % number for number in range(9)])
    with (
        closing(a_producer(bootstrap, f"x-{topic}")) as producer,
        consumer(bootstrap, group, topic) as member,
    ):
        poll_until([member], lambda: len(member.assignment()) == 1, JOINING_POLL_MS)
        for end, expected in ((producer.abort_transaction, None), (producer.commit_transaction, 5)):
            producer.begin_transaction()
            moved = {partition: OffsetAndMetadata(5, "", -1)}
            producer.send_offsets_to_transaction(moved, member.group_metadata())
            end()
            wait_until_committed(member, partition, expected)


def test_a_zombie_is_fenced(bootstrap, topic) -> None:
    zombie = a_producer(bootstrap, f"x-{topic}")
    zombie.begin_transaction()
    zombie.send(topic, b"zombie").get(TIMEOUT_S)
    with closing(a_producer(bootstrap, f"x-{topic}")) as heir:
        heir.begin_transaction()
        heir.send(topic, b"heir").get(TIMEOUT_S)
        heir.commit_transaction()
    with pytest.raises(KafkaError):
        zombie.commit_transaction()
    zombie.close(timeout=5)
    assert values(bootstrap, topic, "read_committed", 1) == [b"heir"]
