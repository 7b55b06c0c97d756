"""confluent-kafka (librdkafka): commit, abort, fencing, timeouts and consume-transform-produce."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.compat.librdkafka import consumer, send, take


def transactional(bootstrap: str, name: str, **config: Any) -> Producer:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, **settings})
    producer.init_transactions(30)
    return producer


@contextmanager
def reader(bootstrap: str, group: str, topic: str, isolation: str) -> Iterator[Consumer]:
    with consumer(bootstrap, group, isolation_level=isolation, enable_partition_eof=True) as opened:
        opened.assign([TopicPartition(topic, 0, 0)])
        yield opened


def read_to_the_end(source: Consumer) -> list[bytes]:
    """All records up to the end of the partition."""
    found: list[bytes] = []
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        message = source.poll(1)
        if message is None:
            continue
        if message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            return found
        found.append(message.value() or b"")
    raise AssertionError(f"no end after {len(found)} records")


def test_isolation_levels(bootstrap, topic, group) -> None:
    producer = transactional(bootstrap, group)
    for number in range(6):
        producer.begin_transaction()
        for part in range(20):
            producer.produce(topic, b"%d-%d" % (number, part), partition=0)
        if number % 2:
            assert producer.flush(30) == 0
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    everything = [b"%d-%d" % (number, part) for number in range(6) for part in range(20)]
    with reader(bootstrap, group, topic, "read_uncommitted") as source:
        assert read_to_the_end(source) == everything
    with reader(bootstrap, group, topic, "read_committed") as source:
        assert read_to_the_end(source) == [value for value in everything if int(value[:1]) % 2 == 0]


def test_an_open_transaction_blocks_read_committed_consumers(bootstrap, topic, group) -> None:
    producer = transactional(bootstrap, group)
    send(bootstrap, topic, [b"before"], partition=0)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    assert producer.flush(30) == 0
    send(bootstrap, topic, [b"behind"], partition=0)
    with reader(bootstrap, group, topic, "read_committed") as source:
        assert read_to_the_end(source) == [b"before"]
        producer.commit_transaction(30)
        assert read_to_the_end(source) == [b"open", b"behind"]


def test_a_second_producer_fences_the_first(bootstrap, topic, group) -> None:
    first = transactional(bootstrap, group)
    first.begin_transaction()
    first.produce(topic, b"of the first", partition=0)
    assert first.flush(30) == 0
    second = transactional(bootstrap, group)
    with pytest.raises(KafkaException) as caught:
        first.commit_transaction(30)
    error: KafkaError = caught.value.args[0]
    assert error.fatal() and error.code() == KafkaError._FENCED
    second.begin_transaction()
    second.produce(topic, b"of the second", partition=0)
    second.commit_transaction(30)
    with reader(bootstrap, group, topic, "read_committed") as source:
        assert read_to_the_end(source) == [b"of the second"]


def test_a_transaction_is_aborted_after_its_timeout(bootstrap, topic, group) -> None:
    producer = transactional(bootstrap, group, transaction_timeout_ms=1000)
    producer.begin_transaction()
    producer.produce(topic, b"late", partition=0)
    assert producer.flush(30) == 0
    send(bootstrap, topic, [b"behind"], partition=0)
    with consumer(bootstrap, group, isolation_level="read_committed") as source:
        source.assign([TopicPartition(topic, 0, 0)])
        # The coordinator checks for timeouts periodically, by default every ten seconds.
        assert [message.value() for message in take(source, 1)] == [b"behind"]
    with pytest.raises(KafkaException):
        producer.commit_transaction(30)


def test_consume_transform_produce_is_exactly_once(bootstrap, make_topic, group) -> None:
    source_topic, target_topic = make_topic(), make_topic()
    sent = [b"%d" % number for number in range(500)]
    send(bootstrap, source_topic, sent, partition=0)
    for life in range(5):
        # Each incarnation resumes at the committed offset; the odd ones abort their last transaction.
        producer = transactional(bootstrap, group)
        with consumer(bootstrap, group, isolation_level="read_committed") as source:
            source.subscribe([source_topic])
            for round_ in range(4):
                messages = take(source, 25)
                producer.begin_transaction()
                for message in messages:
                    producer.produce(target_topic, message.value(), partition=0)
                ends = [TopicPartition(source_topic, 0, messages[-1].offset() + 1)]
                producer.send_offsets_to_transaction(ends, source.consumer_group_metadata(), 30)
                if life % 2 and round_ == 3:
                    producer.abort_transaction(30)
                else:
                    producer.commit_transaction(30)
    with reader(bootstrap, f"{group}-check", target_topic, "read_committed") as source:
        assert read_to_the_end(source) == sent[:450]


def test_transactions_over_many_partitions_are_atomic(bootstrap, make_topic, group) -> None:
    topic = make_topic(partitions=4)
    producer = transactional(bootstrap, group)
    for number in range(30):
        producer.begin_transaction()
        for partition in range(4):
            producer.produce(topic, b"%d" % number, partition=partition)
        if number % 3:
            producer.commit_transaction(30)
        else:
            assert producer.flush(30) == 0
            producer.abort_transaction(30)
    for partition in range(4):
        with consumer(bootstrap, group, isolation_level="read_committed") as source:
            source.assign([TopicPartition(topic, partition, 0)])
            seen = [message.value() for message in take(source, 20)]
            assert seen == [b"%d" % number for number in range(30) if number % 3]
            assert source.poll(0.5) is None
