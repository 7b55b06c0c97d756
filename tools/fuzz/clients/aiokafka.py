"""What an application on aiokafka does, which speaks the oldest versions of the three."""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

TIMEOUT_S = 20
GROUP = "aiokafka"
MISSING = "missing"
CODECS = (None, "gzip", "snappy", "lz4", "zstd")


async def produce(bootstrap: str, topic: str) -> None:
    for codec in CODECS:
        settings = {"compression_type": codec, "enable_idempotence": codec is not None, "linger_ms": 5}
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, **settings) as producer:
            sent = [
                await producer.send(
                    topic, b"value" * number, b"key-%d" % number, headers=[("trace", b"\x01")]
                )
                for number in range(20)
            ]
            await asyncio.gather(*sent)


async def consume(bootstrap: str, topic: str) -> None:
    settings = {
        "group_id": GROUP,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "heartbeat_interval_ms": 100,
        "fetch_max_wait_ms": 1,
    }
    async with AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, **settings) as consumer:
        for _ in range(20 * len(CODECS)):
            await consumer.getone()
        await consumer.commit()
        # Long enough for a heartbeat, also where others keep the machine busy.
        await asyncio.sleep(2)


async def administer(bootstrap: str, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.list_topics()
        await admin.describe_cluster()
        await admin.describe_topics([topic])
        await admin.create_topics([NewTopic(MISSING, 2, 1)], validate_only=True)
        await admin.create_partitions({topic: NewPartitions(5)}, validate_only=True)
        await admin.describe_configs([resource])
        await admin.list_consumer_groups()
        await admin.describe_consumer_groups([GROUP])
        await admin.list_consumer_group_offsets(GROUP)
        await admin.delete_records({partition: RecordsToDelete(1)})
        # It does not exist: the refusal is in the answer.
        await admin.delete_topics([MISSING])
    finally:
        await admin.close()


async def main(bootstrap: str, topic: str) -> None:
    for session in (produce, consume, administer):
        async with asyncio.timeout(TIMEOUT_S):
            await session(bootstrap, topic)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
