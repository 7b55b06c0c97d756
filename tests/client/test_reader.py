"""Reading from offsets and timestamps, to the end or continuously, also across broker restarts."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from runnel.client.admin import Admin
from runnel.client.chunk import Message
from runnel.client.cluster import Cluster
from runnel.client.errors import BrokerError
from runnel.client.offsets import (
    MAX_TIMESTAMP,
    READ_COMMITTED,
    end_offsets,
    list_offsets,
    offsets_since,
    start_offsets,
)
from runnel.client.producer import Producer
from runnel.client.reader import Reader
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition
from runnel.testing import Broker


async def fill(cluster: Cluster, topic: str, count: int, partitions: int = 1) -> list[TopicPartition]:
    """Records 0, 1, … with timestamps 1000, 1010, …, round-robin over the partitions."""
    # The timestamps are from 1970, so retention must be disabled.
    await Admin(cluster).create_topic(topic, partitions=partitions, settings={"retention.ms": "-1"})
    async with Producer(cluster, batch_bytes=300) as producer:
        for number in range(count):
            await producer.send(
                topic, b"%d" % number, partition=number % partitions, timestamp_ms=1000 + 10 * number
            )
    return [TopicPartition(topic, number) for number in range(partitions)]


async def take(messages: AsyncIterator[Message], count: int) -> list[Message]:
    got: list[Message] = []
    async for message in messages:
        got.append(message)
        if len(got) == count:
            break
    return got


def numbers(messages: list[Message]) -> list[int]:
    return [int(message.value or b"") for message in messages]


def test_everything_from_the_start_to_the_end(address, name):
    async def play() -> None:
        async with Cluster(address) as cluster:
            partitions = await fill(cluster, name, 3000, partitions=3)
            async with Reader(cluster, partition_max_bytes=2000) as reader:
                await reader.assign(await start_offsets(cluster, partitions))
                messages = [message async for message in reader.messages_to_end()]
                assert sorted(numbers(messages)) == list(range(3000))
                assert reader.positions == dict.fromkeys(partitions, 1000)
        for partition in range(3):
            mine = [message for message in messages if message.partition == partition]
            assert [message.offset for message in mine] == list(range(1000))

    asyncio.run(play())


@pytest.mark.parametrize("offset", [0, 1, 57, 99])
def test_from_an_offset(address, name, offset):
    async def play() -> None:
        async with Cluster(address) as cluster:
            [partition] = await fill(cluster, name, 100)
            async with Reader(cluster, isolation=READ_COMMITTED) as reader:
                await reader.assign({partition: offset})
                messages = [message async for message in reader.messages_to_end()]
        assert numbers(messages) == list(range(offset, 100))

    asyncio.run(play())


@pytest.mark.parametrize("moment, first", [(0, 0), (1000, 0), (1001, 1), (1500, 50), (1990, 99), (1991, 100)])
def test_from_a_timestamp(address, name, moment, first):
    async def play() -> None:
        async with Cluster(address) as cluster:
            partitions = await fill(cluster, name, 100)
            assert await offsets_since(cluster, partitions, moment) == {partitions[0]: first}

    asyncio.run(play())


def test_the_latest_timestamp(address, name):
    async def play() -> None:
        async with Cluster(address) as cluster:
            [partition] = await fill(cluster, name, 10)
            found = await list_offsets(cluster, {partition: MAX_TIMESTAMP})
            assert (found[partition].offset, found[partition].timestamp_ms) == (9, 1090)

    asyncio.run(play())


def test_following_receives_later_records(address, name):
    async def play() -> None:
        async with Cluster(address) as cluster:
            [partition] = await fill(cluster, name, 5)
            async with Reader(cluster) as reader, Producer(cluster) as producer:
                await reader.assign(await end_offsets(cluster, [partition]))
                following = asyncio.create_task(take(reader.messages(), 2))
                await asyncio.sleep(0.05)
                await producer.send_and_wait(name, b"5")
                await producer.send_and_wait(name, b"6")
                assert numbers(await following) == [5, 6]

    asyncio.run(play())


def test_seeking_backwards(address, name):
    async def play() -> None:
        async with Cluster(address) as cluster:
            [partition] = await fill(cluster, name, 50)
            async with Reader(cluster) as reader:
                await reader.assign({partition: 0})
                assert numbers(await take(reader.messages(), 20)) == list(range(20))
                assert reader.positions == {partition: 20}
                await reader.seek({partition: 5})
                assert numbers(await take(reader.messages(), 3)) == [5, 6, 7]

    asyncio.run(play())


def test_an_out_of_range_offset_is_an_error_or_reset(address, name):
    async def play() -> None:
        async with Cluster(address) as cluster:
            [partition] = await fill(cluster, name, 50)
            await Admin(cluster).delete_records({partition: 30})
            async with Reader(cluster) as reader:
                await reader.assign({partition: 10})
                with pytest.raises(BrokerError, match="OFFSET_OUT_OF_RANGE"):
                    await take(reader.messages(), 1)
            async with Reader(cluster, out_of_range="earliest") as reader:
                await reader.assign({partition: 10})
                assert numbers(await take(reader.messages(), 2)) == [30, 31]

    asyncio.run(play())


def test_an_interrupt_wakes_the_caller(address, name):
    async def play() -> None:
        async with Cluster(address) as cluster:
            [partition] = await fill(cluster, name, 0)
            async with Reader(cluster) as reader:
                await reader.assign({partition: 0})
                waiting = asyncio.create_task(reader.next_chunk())
                await asyncio.sleep(0.02)
                reader.interrupt()
                assert await waiting is None

    asyncio.run(play())


def test_following_survives_a_broker_restart(name):
    async def play() -> None:
        async with Broker() as broker, Cluster(broker.bootstrap_servers) as cluster:
            [partition] = await fill(cluster, name, 10)
            async with Reader(cluster) as reader:
                await reader.assign({partition: 0})
                messages = reader.messages()
                assert numbers(await take(messages, 10)) == list(range(10))
                await asyncio.to_thread(broker.restart)
                async with Producer(cluster) as producer:
                    await producer.send_and_wait(name, b"10")
                assert numbers(await take(reader.messages(), 1)) == [10]

    asyncio.run(play())


def test_prefetching_is_bounded(address, name):
    async def play() -> None:
        async with Cluster(address) as cluster:
            [partition] = await fill(cluster, name, 3000)
            async with Reader(cluster, partition_max_bytes=500, max_bytes=500) as reader:
                await reader.assign({partition: 0})
                await reader.next_chunk()
                await asyncio.sleep(0.2)
                assert reader._ahead[partition] < 300

    asyncio.run(play())


def test_a_topic_that_was_created_again_is_another_one(address, name):
    """Its offsets are those of the old one, too: nothing of it is read by the id of that."""

    async def play() -> None:
        async with Cluster(address, timeout_s=2.0) as cluster:
            await fill(cluster, name, 5)
            old = (await cluster.topic(name)).topic_id
            async with Reader(cluster, topic_ids={name: old}) as reader:
                await reader.assign({TopicPartition(name, 0): 0})
                assert numbers(await take(reader.messages(), 5)) == list(range(5))
                await Admin(cluster).delete_topic(name)
                await fill(cluster, name, 7)
                assert (await cluster.topic(name, max_age_s=0.0)).topic_id != old
                with pytest.raises(BrokerError) as refused:
                    await take(reader.messages(), 1)
                assert refused.value.error is ErrorCode.UNKNOWN_TOPIC_ID
            async with Reader(cluster) as by_name:
                await by_name.assign({TopicPartition(name, 0): 5})
                assert numbers(await take(by_name.messages(), 2)) == [5, 6]

    asyncio.run(play())
