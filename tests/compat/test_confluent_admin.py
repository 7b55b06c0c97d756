"""Administration with confluent-kafka: topics, configs, groups, offsets, records."""

import time

import pytest
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)

from tests.compat.librdkafka import consumer, poll_until, send, take


def test_topics_are_created_described_grown_and_deleted(admin, make_topic) -> None:
    topic = make_topic(partitions=2)
    described = admin.describe_topics(TopicCollection([topic]))[topic].result(20)
    assert (described.name, len(described.partitions), described.is_internal) == (topic, 2, False)
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(20)
    assert len(admin.list_topics(topic, timeout=20).topics[topic].partitions) == 5
    admin.delete_topics([topic])[topic].result(20)
    deadline = time.monotonic() + 20
    while topic in admin.list_topics(timeout=20).topics:
        assert time.monotonic() < deadline


@pytest.mark.parametrize(
    ("name", "partitions", "replicas", "config", "code"),
    [
        ("bad name", 1, 1, {}, KafkaError.TOPIC_EXCEPTION),
        ("..", 1, 1, {}, KafkaError.TOPIC_EXCEPTION),
        ("no-such-replicas", 1, 9, {}, KafkaError.INVALID_REPLICATION_FACTOR),
        ("bad-config", 1, 1, {"retention.ms": "soon"}, KafkaError.INVALID_CONFIG),
        ("unknown-config", 1, 1, {"nonsense": "1"}, KafkaError.INVALID_CONFIG),
    ],
)
def test_invalid_topics_fail_with_kafkas_error_code(admin, name, partitions, replicas, config, code) -> None:
    new = NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=config)
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([new])[name].result(20)
    assert refused.value.args[0].code() == code


def test_a_duplicate_topic_is_rejected(admin, topic) -> None:
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(20)


def test_validate_only_creates_no_topic(admin, group) -> None:
    admin.create_topics([NewTopic(group, 1, 1)], validate_only=True)[group].result(20)
    assert group not in admin.list_topics(timeout=20).topics


def test_topic_configs_are_described_and_altered(admin, make_topic) -> None:
    topic = make_topic(retention_ms="3600000")
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries = admin.describe_configs([resource])[resource].result(20)
    assert entries["retention.ms"].value == "3600000"
    assert not entries["retention.ms"].is_default
    assert entries["cleanup.policy"].value == "delete"
    assert entries["cleanup.policy"].is_default

    change = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND)
    reset = ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE)
    altering = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change, reset])
    admin.incremental_alter_configs([altering])[altering].result(20)
    entries = admin.describe_configs([resource])[resource].result(20)
    assert entries["cleanup.policy"].value == "delete,compact"
    assert entries["retention.ms"].value == "604800000"


def test_broker_configs_are_described(admin) -> None:
    node = next(iter(admin.list_topics(timeout=20).brokers))
    resource = ConfigResource(ResourceType.BROKER, str(node))
    entries = admin.describe_configs([resource])[resource].result(20)
    for name in ("log.retention.hours", "num.partitions", "message.max.bytes", "auto.create.topics.enable"):
        assert name in entries


def test_the_cluster_is_described(admin) -> None:
    described = admin.describe_cluster().result(20)
    assert described.cluster_id
    assert described.controller.id in [node.id for node in described.nodes]


def test_groups_are_listed_described_reset_and_deleted(admin, bootstrap, make_topic, group) -> None:
    topic = make_topic(partitions=2)
    send(bootstrap, topic, [b"v"] * 10, partition=0)
    with consumer(bootstrap, group) as member:
        member.subscribe([topic])
        poll_until([member], lambda: len(member.assignment()) == 2)
        described = admin.describe_consumer_groups([group])[group].result(20)
        assert (described.state.name, len(described.members)) == ("STABLE", 1)
        assert len(described.members[0].assignment.topic_partitions) == 2
        with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
            admin.delete_consumer_groups([group])[group].result(20)
    assert group in [listed.group_id for listed in admin.list_consumer_groups().result(20).valid]

    target = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 7)])
    admin.alter_consumer_group_offsets([target])[group].result(20)
    asked = ConsumerGroupTopicPartitions(group, None)
    fetched = admin.list_consumer_group_offsets([asked])[group].result(20)
    assert [(item.partition, item.offset) for item in fetched.topic_partitions if item.offset >= 0] == [
        (0, 7)
    ]
    admin.delete_consumer_groups([group])[group].result(20)
    assert group not in [listed.group_id for listed in admin.list_consumer_groups().result(20).valid]


def test_offsets_are_listed_by_spec_and_timestamp(admin, bootstrap, topic) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    now = int(time.time() * 1000)
    for age in (50, 40, 0, 20):
        producer.produce(topic, b"v", timestamp=now - age)
    assert producer.flush(20) == 0
    partition = TopicPartition(topic, 0)
    for spec, expected in (
        (OffsetSpec.earliest(), 0),
        (OffsetSpec.latest(), 4),
        (OffsetSpec.for_timestamp(now - 45), 1),
        (OffsetSpec.max_timestamp(), 2),
    ):
        assert admin.list_offsets({partition: spec})[partition].result(20).offset == expected


def test_deleted_records_are_not_readable(admin, bootstrap, topic) -> None:
    send(bootstrap, topic, [b"%d" % number for number in range(10)])
    partition = TopicPartition(topic, 0, 6)
    deleted = admin.delete_records([partition])[partition].result(20)
    assert deleted.low_watermark == 6
    with consumer(bootstrap, "unused") as reader:
        reader.assign([TopicPartition(topic, 0, 0)])
        assert [message.offset() for message in take(reader, 4)] == [6, 7, 8, 9]


def test_acl_requests_fail_with_security_disabled(admin) -> None:
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    try:
        assert admin.describe_acls(everything).result(20) == []
    except KafkaException as refused:
        assert refused.args[0].name() == "SECURITY_DISABLED"
