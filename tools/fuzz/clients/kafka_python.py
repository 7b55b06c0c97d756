"""What an application on kafka-python does."""

import sys
import time
from contextlib import closing, suppress

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, KafkaAdminClient
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

TIMEOUT_S = 20
GROUP = "kafka-python"
MISSING = "missing"
# A join that outlasts a poll may be forgotten by kafka-python 3.0.12; a poll ends as soon as records come.
POLL_MS = 10_000
CODECS = (None, "gzip", "snappy", "lz4", "zstd")


def produce(bootstrap: str, topic: str) -> None:
    for codec in CODECS:
        settings = {"compression_type": codec, "linger_ms": 5}
        with closing(KafkaProducer(bootstrap_servers=bootstrap, **settings)) as producer:
            for future in [
                producer.send(topic, b"value" * number, b"key-%d" % number, headers=[("trace", b"\x01")])
                for number in range(20)
            ]:
                future.get(timeout=TIMEOUT_S)


def consume(bootstrap: str, topic: str) -> None:
    settings = {
        "group_id": GROUP,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "heartbeat_interval_ms": 100,
        "fetch_max_wait_ms": 1,
    }
    with closing(KafkaConsumer(topic, bootstrap_servers=bootstrap, **settings)) as consumer:
        deadline = time.monotonic() + TIMEOUT_S
        count = 0
        while count < 20 * len(CODECS):
            assert time.monotonic() < deadline, f"only {count} records came"
            count += sum(len(batch) for batch in consumer.poll(timeout_ms=POLL_MS).values())
        consumer.commit()
        # Long enough for a heartbeat, also where others keep the machine busy.
        consumer.poll(timeout_ms=2000)


def administer(bootstrap: str, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        admin.list_topics()
        admin.describe_cluster()
        admin.describe_topics([topic])
        admin.create_topics({MISSING: {"num_partitions": 2, "replication_factor": 1}}, validate_only=True)
        admin.create_partitions({topic: 5}, validate_only=True)
        altered = ConfigResource("TOPIC", topic, {"retention.ms": "7200000"})
        admin.alter_configs([altered], validate_only=True)
        admin.describe_configs([ConfigResource("TOPIC", topic)], config_filter="all")
        admin.list_groups()
        admin.describe_groups([GROUP])
        admin.alter_group_offsets(GROUP, {partition: OffsetAndMetadata(1, "", -1)})
        admin.list_group_offsets({GROUP: None})
        admin.delete_records({partition: 1})
        admin.describe_log_dirs([topic])
        admin.describe_producers([partition])
        admin.list_partition_reassignments()
        # What does not exist is refused, and that is an answer too.
        with suppress(KafkaError):
            admin.delete_topics([MISSING])
        with suppress(KafkaError):
            admin.delete_groups([MISSING])


if __name__ == "__main__":
    for session in (produce, consume, administer):
        session(sys.argv[1], sys.argv[2])
