"""confluent-kafka (librdkafka): producing, consumer groups, commits and seeks."""

import time

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.compat.librdkafka import consumer, poll_until, read_all, send, take

AN_HOUR_AGO_MS = time.time_ns() // 1_000_000 - 3_600_000


def test_records_round_trip_unchanged(bootstrap, topic) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    headers = [("trace", b"\x00\x01"), ("trace", b"again"), ("empty", b""), ("null", None)]
    producer.produce(topic, key=b"k", value=b"v", headers=headers, timestamp=AN_HOUR_AGO_MS)
    producer.produce(topic, key=None, value=None)
    assert producer.flush(20) == 0
    first, second = read_all(bootstrap, topic, 2)
    assert (first.key(), first.value(), first.headers()) == (b"k", b"v", headers)
    assert first.timestamp() == (1, AN_HOUR_AGO_MS)
    assert (second.key(), second.value(), second.offset()) == (None, None, 1)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_type_round_trips(bootstrap, topic, codec) -> None:
    values = [b"squeeze me " * 20 + b"%d" % number for number in range(500)]
    send(bootstrap, topic, values, compression_type=codec)
    assert [message.value() for message in read_all(bootstrap, topic, 500)] == values


@pytest.mark.parametrize("codec", ["gzip", "zstd", "uncompressed"])
def test_a_topic_recompresses_batches(bootstrap, make_topic, codec) -> None:
    topic = make_topic(compression_type=codec)
    values = [b"squeeze me " * 20 + b"%d" % number for number in range(200)]
    send(bootstrap, topic, values, compression_type="lz4")
    assert [message.value() for message in read_all(bootstrap, topic, 200)] == values


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_acks_setting(bootstrap, topic, acks) -> None:
    reports = send(bootstrap, topic, [b"%d" % number for number in range(100)], acks=acks)
    assert len(reports) == 100
    assert [message.value() for message in read_all(bootstrap, topic, 100)] == [b"%d" % n for n in range(100)]


def test_an_idempotent_producer_keeps_order_and_count(bootstrap, topic) -> None:
    values = [b"%d" % number for number in range(5000)]
    reports = send(bootstrap, topic, values, enable_idempotence=True, batch_num_messages=50)
    assert [report.offset() for report in reports] == list(range(5000))
    assert [message.value() for message in read_all(bootstrap, topic, 5000)] == values


def test_log_append_time_is_set_by_the_broker(bootstrap, make_topic) -> None:
    topic = make_topic(message_timestamp_type="LogAppendTime")
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"old", timestamp=1000)
    assert producer.flush(20) == 0
    kind, stamp = read_all(bootstrap, topic, 1)[0].timestamp()
    assert kind == 2
    assert abs(stamp - time.time() * 1000) < 60_000


def test_a_message_that_is_too_large_is_rejected_and_the_next_one_accepted(bootstrap, make_topic) -> None:
    topic = make_topic(max_message_bytes="10000")
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 1_000_000})
    for value in (b"x" * 50_000, b"small"):
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(20) == 0
    assert [error and error.code() for error in errors] == [KafkaError.MSG_SIZE_TOO_LARGE, None]


def test_an_invalid_record_is_reported_separately_from_its_batch(bootstrap, make_topic) -> None:
    topic = make_topic(cleanup_policy="compact")
    errors: dict[bytes, str] = {}
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1000})

    def delivered(error: KafkaError, message: Message) -> None:
        errors[message.value()] = error.name()

    # With a single invalid record librdkafka does not distinguish them.
    for value, key in ((b"good", b"key"), (b"bad", None), (b"also good", b"key"), (b"also bad", None)):
        producer.produce(topic, key=key, value=value, on_delivery=delivered)
    assert producer.flush(30) == 0
    good, bad = "_INVALID_DIFFERENT_RECORD", "INVALID_RECORD"
    assert errors == {b"good": good, b"bad": bad, b"also good": good, b"also bad": bad}


def test_seek_by_time_is_exact(bootstrap, topic) -> None:
    base = int(time.time() * 1000) - 1_000_000
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    for number in range(1000):
        producer.produce(topic, b"%d" % number, timestamp=base + number * 10)
    assert producer.flush(20) == 0
    with consumer(bootstrap, "unused") as reader:
        for wanted, expected in ((base, 0), (base + 4991, 500), (base + 5000, 500), (base + 9990, 999)):
            found = reader.offsets_for_times([TopicPartition(topic, 0, wanted)], timeout=20)
            assert found[0].offset == expected
        assert reader.offsets_for_times([TopicPartition(topic, 0, base + 9991)], timeout=20)[0].offset == -1
        reader.assign([TopicPartition(topic, 0, 500)])
        assert take(reader, 1)[0].value() == b"500"
        assert reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=20) == (0, 1000)


def test_a_group_resumes_where_it_committed(bootstrap, topic, group) -> None:
    send(bootstrap, topic, [b"%d" % number for number in range(20)])
    with consumer(bootstrap, group) as first:
        first.subscribe([topic])
        assert [message.offset() for message in take(first, 8)] == list(range(8))
        first.commit(offsets=[TopicPartition(topic, 0, 8, "half way")], asynchronous=False)
    with consumer(bootstrap, group) as second:
        committed = second.committed([TopicPartition(topic, 0)], timeout=20)[0]
        assert (committed.offset, committed.metadata) == (8, "half way")
        second.subscribe([topic])
        assert take(second, 12)[0].offset() == 8


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_partitions_are_rebalanced_when_members_join_and_leave(
    bootstrap, make_topic, group, strategy
) -> None:
    topic = make_topic(partitions=6)
    with consumer(bootstrap, group, partition_assignment_strategy=strategy) as first:
        first.subscribe([topic])
        poll_until([first], lambda: len(first.assignment()) == 6)
        with consumer(bootstrap, group, partition_assignment_strategy=strategy) as second:
            second.subscribe([topic])
            poll_until([first, second], lambda: [len(first.assignment()), len(second.assignment())] == [3, 3])
            owned = {item.partition for member in (first, second) for item in member.assignment()}
            assert owned == set(range(6))
        poll_until([first], lambda: len(first.assignment()) == 6)


def test_a_group_consumes_all_partitions(bootstrap, make_topic, group) -> None:
    topic = make_topic(partitions=4)
    seen: set[tuple[int, int]] = set()

    def note(member: Consumer) -> None:
        message = member.poll(0.05)
        if message is not None and message.error() is None:
            seen.add((message.partition(), message.offset()))

    for partition in range(4):
        send(bootstrap, topic, [b"v"] * 50, partition=partition)
    with consumer(bootstrap, group) as first, consumer(bootstrap, group) as second:
        for member in (first, second):
            member.subscribe([topic])
        deadline = time.monotonic() + 30
        while len(seen) < 200 and time.monotonic() < deadline:
            note(first)
            note(second)
    assert seen == {(partition, offset) for partition in range(4) for offset in range(50)}


def test_a_static_member_keeps_its_partitions_across_a_restart(bootstrap, make_topic, group) -> None:
    topic = make_topic(partitions=2)
    revoked: list[int] = []
    with consumer(bootstrap, group, group_instance_id="a", session_timeout_ms=20000) as stays:
        stays.subscribe([topic], on_revoke=lambda _, partitions: revoked.append(len(partitions)))
        with consumer(bootstrap, group, group_instance_id="b", session_timeout_ms=20000) as leaves:
            leaves.subscribe([topic])
            poll_until([stays, leaves], lambda: len(stays.assignment()) == len(leaves.assignment()) == 1)
            before = leaves.assignment()[0].partition
        revoked.clear()
        with consumer(bootstrap, group, group_instance_id="b", session_timeout_ms=20000) as returns:
            returns.subscribe([topic])
            poll_until([stays, returns], lambda: len(returns.assignment()) == 1)
            assert returns.assignment()[0].partition == before
            assert revoked == []


def test_a_stale_static_member_is_fenced(bootstrap, topic, group) -> None:
    with consumer(bootstrap, group, group_instance_id="one") as older:
        older.subscribe([topic])
        poll_until([older], lambda: len(older.assignment()) == 1)
        with consumer(bootstrap, group, group_instance_id="one") as newer:
            newer.subscribe([topic])
            poll_until([newer], lambda: len(newer.assignment()) == 1)
            deadline = time.monotonic() + 30
            fenced = False
            fencing = (KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID)
            while not fenced and time.monotonic() < deadline:
                try:
                    message = older.poll(0.2)
                    error = message.error() if message is not None else None
                except KafkaException as raised:
                    error = raised.args[0]
                fenced = error is not None and error.code() in fencing
            assert fenced


def test_a_topic_is_created_on_first_use(bootstrap, group) -> None:
    topic = f"auto-{group}"
    send(bootstrap, topic, [b"first"], partition=0)
    assert read_all(bootstrap, topic, 1)[0].value() == b"first"


def test_a_long_poll_returns_new_records(bootstrap, topic) -> None:
    with consumer(bootstrap, "unused", fetch_wait_max_ms=5000) as reader:
        reader.assign([TopicPartition(topic, 0, 0)])
        assert reader.poll(1.0) is None
        send(bootstrap, topic, [b"late"])
        assert take(reader, 1)[0].value() == b"late"
