"""aiokafka, which uses no flexible versions: producing, consumer groups, commits, seeks, administration."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

TIMEOUT_S = 30
AN_HOUR_AGO_MS = time.time_ns() // 1_000_000 - 3_600_000


async def send(bootstrap: str, topic: str, values: list[bytes], **config: Any) -> list[int]:
    """Produce, wait for the acknowledgements, and return the offsets in order of sending."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=5, **config) as producer:
        futures = [await producer.send(topic, value, partition=0) for value in values]
        return [report.offset if report else -1 for report in await asyncio.gather(*futures)]


def consumer(bootstrap: str, group: str | None, *topics: str, **config: Any) -> AIOKafkaConsumer:
    settings = {
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "heartbeat_interval_ms": 200,
        "fetch_max_wait_ms": 100,
        **config,
    }
    return AIOKafkaConsumer(*topics, bootstrap_servers=bootstrap, group_id=group, **settings)


async def take(source: AIOKafkaConsumer, count: int) -> list:
    async with asyncio.timeout(TIMEOUT_S):
        return [await source.getone() for _ in range(count)]


async def read_all(bootstrap: str, topic: str, count: int) -> list:
    async with consumer(bootstrap, None) as reader:
        reader.assign([TopicPartition(topic, 0)])
        return await take(reader, count)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await asyncio.sleep(0.05)


def test_records_round_trip_unchanged(bootstrap, topic) -> None:
    headers = [("trace", b"\x00\x01"), ("empty", b"")]

    async def story() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            await producer.send_and_wait(topic, b"v", b"k", headers=headers, timestamp_ms=AN_HOUR_AGO_MS)
            await producer.send_and_wait(topic, None, b"tombstone")
        first, second = await read_all(bootstrap, topic, 2)
        assert (first.key, first.value, list(first.headers)) == (b"k", b"v", headers)
        assert first.timestamp == AN_HOUR_AGO_MS
        assert (second.key, second.value, second.offset) == (b"tombstone", None, 1)

    asyncio.run(story())


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_type_round_trips(bootstrap, topic, codec) -> None:
    values = [b"squeeze me " * 20 + b"%d" % number for number in range(300)]

    async def story() -> None:
        await send(bootstrap, topic, values, compression_type=codec)
        assert [record.value for record in await read_all(bootstrap, topic, 300)] == values

    asyncio.run(story())


@pytest.mark.parametrize(("acks", "idempotent"), [(0, False), (1, False), ("all", True)])
def test_every_acks_setting(bootstrap, topic, acks, idempotent) -> None:
    values = [b"%d" % number for number in range(300)]

    async def story() -> None:
        offsets = await send(bootstrap, topic, values, acks=acks, enable_idempotence=idempotent)
        assert acks == 0 or offsets == list(range(300))
        assert [record.value for record in await read_all(bootstrap, topic, 300)] == values

    asyncio.run(story())


def test_seek_by_time_is_exact(bootstrap, topic) -> None:
    base = int(time.time() * 1000) - 100_000
    partition = TopicPartition(topic, 0)

    async def story() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=50) as producer:
            for number in range(200):
                await producer.send(topic, b"%d" % number, timestamp_ms=base + number * 10, partition=0)
            await producer.flush()
        async with consumer(bootstrap, None) as reader:
            reader.assign([partition])
            found = await reader.offsets_for_times({partition: base + 991})
            assert found[partition].offset == 100
            assert await reader.end_offsets([partition]) == {partition: 200}
            reader.seek(partition, 100)
            assert (await take(reader, 1))[0].value == b"100"

    asyncio.run(story())


def test_a_group_resumes_where_it_committed(bootstrap, topic, group) -> None:
    partition = TopicPartition(topic, 0)

    async def story() -> None:
        await send(bootstrap, topic, [b"%d" % number for number in range(20)])
        async with consumer(bootstrap, group, topic) as first:
            assert [record.offset for record in await take(first, 8)] == list(range(8))
            await first.commit({partition: (8, "half way")})
        async with consumer(bootstrap, group, topic) as second:
            assert await second.committed(partition) == 8
            assert (await take(second, 12))[0].offset == 8

    asyncio.run(story())


def test_partitions_are_rebalanced_when_members_join_and_leave(bootstrap, make_topic, group) -> None:
    topic = make_topic(partitions=4)

    async def story() -> None:
        async with consumer(bootstrap, group, topic) as first:
            await until(lambda: len(first.assignment()) == 4)
            async with consumer(bootstrap, group, topic) as second:
                both = [first, second]
                await until(lambda: [len(member.assignment()) for member in both] == [2, 2])
                assert {item.partition for member in both for item in member.assignment()} == {0, 1, 2, 3}
            await until(lambda: len(first.assignment()) == 4)

    asyncio.run(story())


def test_topics_and_groups_are_administered(bootstrap, group) -> None:
    topic = f"admin-{group}"
    partition = TopicPartition(topic, 0)

    async def story(client: AIOKafkaAdminClient) -> None:
        await client.create_topics([NewTopic(topic, 2, 1)])
        await client.create_partitions({topic: NewPartitions(3)})
        assert len((await client.describe_topics([topic]))[0]["partitions"]) == 3
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        assert "cleanup.policy" in str(await client.describe_configs([resource]))
        await send(bootstrap, topic, [b"v"] * 5)
        async with consumer(bootstrap, group, topic) as member:
            await take(member, 5)
            await member.commit({partition: 5})
        assert (await client.list_consumer_group_offsets(group))[partition].offset == 5
        assert group in [name for name, _ in await client.list_consumer_groups()]
        await client.delete_records({partition: RecordsToDelete(2)})
        await client.delete_topics([topic])

    async def session() -> None:
        client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await client.start()
        try:
            await story(client)
        finally:
            await client.close()

    asyncio.run(session())
