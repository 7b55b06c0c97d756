"""confluent-kafka (librdkafka) in transactions: readers see all of one or nothing, zombies are fenced."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.compat.librdkafka import consumer, poll_until, take

PATIENCE_S = 30


def a_producer(bootstrap: str, transactional_id: str, **config: int) -> Producer:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, **settings})
    producer.init_transactions(PATIENCE_S)
    return producer


@contextmanager
def reader(bootstrap: str, topic: str, isolation: str, partitions: int = 1) -> Iterator[Consumer]:
    with consumer(bootstrap, "unused", isolation_level=isolation) as opened:
        opened.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)])
        yield opened


def values(bootstrap: str, topic: str, isolation: str, count: int, partitions: int = 1) -> list[bytes]:
    with reader(bootstrap, topic, isolation, partitions) as opened:
        return [message.value() for message in take(opened, count)]


def write(producer: Producer, topic: str, *texts: bytes, partition: int = 0) -> None:
    for text in texts:
        producer.produce(topic, text, partition=partition)
    assert producer.flush(PATIENCE_S) == 0


def test_readers_of_committed_records_see_whole_transactions(bootstrap, topic) -> None:
    producer = a_producer(bootstrap, f"x-{topic}")
    for name, end in (
        (b"a", producer.commit_transaction),
        (b"b", producer.abort_transaction),
        (b"c", producer.commit_transaction),
    ):
        producer.begin_transaction()
        write(producer, topic, name + b"1", name + b"2")
        end(PATIENCE_S)
    assert values(bootstrap, topic, "read_committed", 4) == [b"a1", b"a2", b"c1", b"c2"]
    everything = [b"a1", b"a2", b"b1", b"b2", b"c1", b"c2"]
    assert values(bootstrap, topic, "read_uncommitted", 6) == everything


def test_a_reader_of_committed_records_waits_at_an_open_transaction(bootstrap, topic) -> None:
    producer, other = a_producer(bootstrap, f"x-{topic}"), Producer({"bootstrap.servers": bootstrap})
    write(other, topic, b"before")
    producer.begin_transaction()
    write(producer, topic, b"inside")
    write(other, topic, b"after")
    with reader(bootstrap, topic, "read_committed") as opened:
        assert [message.value() for message in take(opened, 1)] == [b"before"]
        assert opened.poll(1.0) is None
        assert opened.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_S) == (0, 1)
        producer.commit_transaction(PATIENCE_S)
        assert [message.value() for message in take(opened, 2)] == [b"inside", b"after"]


def test_many_transactions_over_many_partitions(bootstrap, make_topic) -> None:
    topic = make_topic(partitions=4)
    producer = a_producer(bootstrap, f"x-{topic}")
    kept = []
    for number in range(40):
        producer.begin_transaction()
        for partition in range(4):
            write(producer, topic, b"%d" % number, partition=partition)
        if number % 3:
            kept.append(b"%d" % number)
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.abort_transaction(PATIENCE_S)
    seen = values(bootstrap, topic, "read_committed", 4 * len(kept), partitions=4)
    assert sorted(seen) == sorted(kept * 4)


def test_a_zombie_is_fenced_and_its_transaction_is_aborted(bootstrap, topic) -> None:
    zombie = a_producer(bootstrap, f"x-{topic}")
    zombie.begin_transaction()
    write(zombie, topic, b"zombie")
    heir = a_producer(bootstrap, f"x-{topic}")
    zombie.produce(topic, b"too late", partition=0)
    with pytest.raises(KafkaException) as refused:
        zombie.commit_transaction(PATIENCE_S)
    assert refused.value.args[0].fatal()
    assert refused.value.args[0].code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
    heir.begin_transaction()
    write(heir, topic, b"heir")
    heir.commit_transaction(PATIENCE_S)
    assert values(bootstrap, topic, "read_committed", 1) == [b"heir"]
    with reader(bootstrap, topic, "read_uncommitted") as opened:
        assert b"too late" not in [message.value() for message in take(opened, 2)]
        assert opened.poll(0.5) is None


def test_a_chain_moves_each_record_once_though_every_other_try_fails(bootstrap, make_topic, group) -> None:
    source, target = make_topic(partitions=2), make_topic()
    feed = Producer({"bootstrap.servers": bootstrap})
    for partition in range(2):
        write(feed, source, *(b"%d-%d" % (partition, number) for number in range(50)), partition=partition)
    producer = a_producer(bootstrap, f"x-{group}")
    moved = tries = 0
    with consumer(bootstrap, group, isolation_level="read_committed") as taker:
        taker.subscribe([source])
        poll_until([taker], lambda: len(taker.assignment()) == 2)
        taker.seek(TopicPartition(source, 0, 0))
        taker.seek(TopicPartition(source, 1, 0))
        while moved < 100:
            batch = take(taker, 10)
            producer.begin_transaction()
            write(producer, target, *(message.value() for message in batch))
            positions = taker.position(taker.assignment())
            producer.send_offsets_to_transaction(positions, taker.consumer_group_metadata(), PATIENCE_S)
            tries += 1
            if tries % 2:
                producer.abort_transaction(PATIENCE_S)
                for place in taker.committed(taker.assignment(), PATIENCE_S):
                    taker.seek(TopicPartition(source, place.partition, max(0, place.offset)))
            else:
                producer.commit_transaction(PATIENCE_S)
                moved += len(batch)
    wanted = sorted(b"%d-%d" % (partition, number) for partition in range(2) for number in range(50))
    assert sorted(values(bootstrap, target, "read_committed", 100)) == wanted
