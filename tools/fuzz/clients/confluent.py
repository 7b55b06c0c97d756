"""What an application on librdkafka does."""

import json
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

TIMEOUT_S = 40
GROUP = "confluent"
MISSING = "missing"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def produce(bootstrap: str, topic: str) -> None:
    for codec in CODECS:
        settings = {"compression.type": codec, "enable.idempotence": codec != "none", "linger.ms": 5}
        producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, **settings})
        for number in range(20):
            producer.produce(topic, b"value" * number, b"key-%d" % number, headers={"trace": b"\x01"})
        assert producer.flush(TIMEOUT_S) == 0, "not all records were acknowledged"


def consume(bootstrap: str, topic: str) -> None:
    heartbeats = 0

    def count_heartbeats(statistics: str) -> None:
        nonlocal heartbeats
        brokers = json.loads(statistics)["brokers"].values()
        heartbeats = sum(broker["req"].get("Heartbeat", 0) for broker in brokers)

    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": GROUP,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "heartbeat.interval.ms": 100,
        "fetch.wait.max.ms": 1,
        "log_level": 0,
        "statistics.interval.ms": 100,
        "stats_cb": count_heartbeats,
    }
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe([topic])
        deadline = time.monotonic() + TIMEOUT_S
        count = 0
        while count < 20 * len(CODECS):
            assert time.monotonic() < deadline, f"only {count} records came"
            count += sum(message.error() is None for message in consumer.consume(100, timeout=0.5))
        consumer.commit(asynchronous=False)
        while not heartbeats:
            assert time.monotonic() < deadline, "no heartbeat was sent"
            consumer.poll(0.1)


def administer(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    partition = TopicPartition(topic, 0)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    retention = ConfigEntry("retention.ms", "7200000", incremental_operation=AlterConfigOpType.SET)
    altered = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[retention])
    admin.list_topics(timeout=TIMEOUT_S)
    admin.describe_cluster().result(TIMEOUT_S)
    admin.list_consumer_groups().result(TIMEOUT_S)
    asked: list[Mapping[Any, Any]] = [
        admin.describe_topics(TopicCollection([topic])),
        admin.create_topics([NewTopic(MISSING, 2, 1)], validate_only=True),
        admin.create_partitions([NewPartitions(topic, 5)], validate_only=True),
        admin.describe_configs([resource, ConfigResource(ConfigResource.Type.BROKER, "1")]),
        admin.incremental_alter_configs([altered], validate_only=True),
        admin.describe_consumer_groups([GROUP]),
        admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)]),
        admin.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(GROUP, [TopicPartition(topic, 0, 1)])]
        ),
        admin.list_offsets({partition: OffsetSpec.latest()}),
        admin.delete_records([TopicPartition(topic, 0, 1)]),
    ]
    for futures in asked:
        for future in futures.values():
            future.result(TIMEOUT_S)
    # What does not exist is refused, and that is an answer too.
    for futures in (admin.delete_topics([MISSING]), admin.delete_consumer_groups([MISSING])):
        for future in futures.values():
            future.exception(TIMEOUT_S)


if __name__ == "__main__":
    for session in (produce, consume, administer):
        session(sys.argv[1], sys.argv[2])
