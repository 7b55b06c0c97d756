"""kafka-python: producing, consumer groups, commits, seeks and administration."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, KafkaAdminClient
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

TIMEOUT_S = 30
# A member joins, fetches the metadata of the topic and rejoins. If that takes longer than a poll,
# kafka-python 3.0.12 never gets an assignment: polls that may join have a long timeout.
JOINING_POLL_MS = 10_000
AN_HOUR_AGO_MS = time.time_ns() // 1_000_000 - 3_600_000


def send(bootstrap: str, topic: str, values: list[bytes], **config) -> list:
    """Produce, and return the acknowledgements in order."""
    with closing(KafkaProducer(bootstrap_servers=bootstrap, linger_ms=5, **config)) as producer:
        futures = [producer.send(topic, value, partition=0) for value in values]
        producer.flush(timeout=TIMEOUT_S)
        return [future.get(timeout=TIMEOUT_S) for future in futures]


@contextmanager
def consumer(bootstrap: str, group: str | None, *topics: str, **config) -> Iterator[KafkaConsumer]:
    settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "fetch_max_wait_ms": 100}
    opened = KafkaConsumer(*topics, bootstrap_servers=bootstrap, group_id=group, **{**settings, **config})
    with closing(opened):
        yield opened


def take(source: KafkaConsumer, count: int) -> list:
    """Poll until `count` records are received."""
    records: list = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(records) < count:
        assert time.monotonic() < deadline, f"only {len(records)} of {count} records came"
        for batch in source.poll(timeout_ms=JOINING_POLL_MS, max_records=count - len(records)).values():
            records.extend(batch)
    return records


def read_all(bootstrap: str, topic: str, count: int) -> list:
    with consumer(bootstrap, None) as reader:
        reader.assign([TopicPartition(topic, 0)])
        return take(reader, count)


def poll_until(sources: list[KafkaConsumer], condition: Callable[[], bool], poll_ms: int = 50) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "timed out waiting for the condition"
        for source in sources:
            source.poll(timeout_ms=poll_ms)


def test_records_round_trip_unchanged(bootstrap, topic) -> None:
    headers = [("trace", b"\x00\x01"), ("empty", b"")]
    with closing(KafkaProducer(bootstrap_servers=bootstrap)) as producer:
        producer.send(topic, b"v", key=b"k", headers=headers, timestamp_ms=AN_HOUR_AGO_MS).get(TIMEOUT_S)
        producer.send(topic, None, key=b"tombstone").get(TIMEOUT_S)
    first, second = read_all(bootstrap, topic, 2)
    assert (first.key, first.value, list(first.headers), first.timestamp) == (
        b"k",
        b"v",
        headers,
        AN_HOUR_AGO_MS,
    )
    assert (second.key, second.value, second.offset) == (b"tombstone", None, 1)


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_type_round_trips(bootstrap, topic, codec) -> None:
    values = [b"squeeze me " * 20 + b"%d" % number for number in range(300)]
    send(bootstrap, topic, values, compression_type=codec)
    assert [record.value for record in read_all(bootstrap, topic, 300)] == values


@pytest.mark.parametrize(("acks", "idempotent"), [(0, False), (1, False), ("all", False), ("all", True)])
def test_every_acks_setting(bootstrap, topic, acks, idempotent) -> None:
    values = [b"%d" % number for number in range(300)]
    reports = send(bootstrap, topic, values, acks=acks, enable_idempotence=idempotent)
    if acks != 0:
        assert [report.offset for report in reports] == list(range(300))
    assert [record.value for record in read_all(bootstrap, topic, 300)] == values


def test_seek_by_time_is_exact(bootstrap, topic) -> None:
    base = int(time.time() * 1000) - 100_000
    with closing(KafkaProducer(bootstrap_servers=bootstrap, linger_ms=50)) as producer:
        for number in range(200):
            producer.send(topic, b"%d" % number, timestamp_ms=base + number * 10)
        producer.flush(timeout=TIMEOUT_S)
    partition = TopicPartition(topic, 0)
    with consumer(bootstrap, None) as reader:
        reader.assign([partition])
        for wanted, expected in ((base, 0), (base + 991, 100), (base + 1990, 199)):
            assert reader.offsets_for_times({partition: wanted})[partition].offset == expected
        assert reader.offsets_for_times({partition: base + 1991})[partition] is None
        assert reader.beginning_offsets([partition]) == {partition: 0}
        assert reader.end_offsets([partition]) == {partition: 200}
        reader.seek(partition, 100)
        assert take(reader, 1)[0].value == b"100"


def test_a_group_resumes_where_it_committed(bootstrap, topic, group) -> None:
    send(bootstrap, topic, [b"%d" % number for number in range(20)])
    partition = TopicPartition(topic, 0)
    with consumer(bootstrap, group, topic) as first:
        assert [record.offset for record in take(first, 8)] == list(range(8))
        first.commit({partition: OffsetAndMetadata(8, "half way", -1)})
    with consumer(bootstrap, group, topic) as second:
        assert take(second, 12)[0].offset == 8
        committed = second.committed(partition, metadata=True)
        assert (committed.offset, committed.metadata) == (8, "half way")


def test_partitions_are_rebalanced_when_members_join_and_leave(bootstrap, make_topic, group) -> None:
    topic = make_topic(partitions=4)
    send(bootstrap, topic, [b"v"])
    with consumer(bootstrap, group, topic, heartbeat_interval_ms=200) as first:
        poll_until([first], lambda: len(first.assignment()) == 4, JOINING_POLL_MS)
        with consumer(bootstrap, group, topic, heartbeat_interval_ms=200) as second:
            both = [first, second]
            poll_until(both, lambda: [len(member.assignment()) for member in both] == [2, 2])
            assert {item.partition for member in both for item in member.assignment()} == {0, 1, 2, 3}
        poll_until([first], lambda: len(first.assignment()) == 4)


@pytest.fixture
def kafka_admin(bootstrap) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as client:
        yield client


def test_topics_are_administered(kafka_admin, group) -> None:
    topic = f"admin-{group}"
    kafka_admin.create_topics({topic: {"num_partitions": 2, "replication_factor": 1}})
    assert topic in kafka_admin.list_topics()
    kafka_admin.create_partitions({topic: 3})
    assert len(kafka_admin.describe_topics([topic])[0]["partitions"]) == 3
    kafka_admin.alter_configs([ConfigResource("TOPIC", topic, {"retention.ms": "7200000"})])
    described = kafka_admin.describe_configs([ConfigResource("TOPIC", topic)], config_filter="all")
    settings = described["topic"][topic]
    assert settings["retention.ms"]["value"] == "7200000"
    assert settings["cleanup.policy"]["value"] == "delete"
    kafka_admin.delete_topics([topic])
    deadline = time.monotonic() + TIMEOUT_S
    while topic in kafka_admin.list_topics():
        assert time.monotonic() < deadline


def test_groups_are_administered(kafka_admin, bootstrap, topic, group) -> None:
    send(bootstrap, topic, [b"v"] * 10)
    partition = TopicPartition(topic, 0)
    with consumer(bootstrap, group, topic) as member:
        poll_until([member], lambda: len(member.assignment()) == 1, JOINING_POLL_MS)
        described = kafka_admin.describe_groups([group])[group]
        assert (described["group_state"], len(described["members"])) == ("Stable", 1)
    kafka_admin.alter_group_offsets(group, {partition: OffsetAndMetadata(7, "", -1)})
    assert kafka_admin.list_group_offsets({group: None})[group][partition].offset == 7
    kafka_admin.delete_groups([group])
    assert group not in [listed["group_id"] for listed in kafka_admin.list_groups()]


def test_records_are_deleted_and_sizes_described(kafka_admin, bootstrap, topic) -> None:
    send(bootstrap, topic, [b"v"] * 10)
    partition = TopicPartition(topic, 0)
    kafka_admin.delete_records({partition: 4})
    with consumer(bootstrap, None) as reader:
        assert reader.beginning_offsets([partition]) == {partition: 4}
    assert topic in str(kafka_admin.describe_log_dirs([topic]))


def test_an_unknown_topic_is_an_error(kafka_admin, group) -> None:
    with pytest.raises(KafkaError):
        kafka_admin.delete_topics([f"missing-{group}"])
