"""Records are delivered once and in order, also across broker restarts."""

import asyncio
import time
from collections import Counter

import pytest

from runnel.batch.records import Record
from runnel.client.accumulator import Delivery
from runnel.client.admin import Admin
from runnel.client.chunk import Message
from runnel.client.cluster import Cluster
from runnel.client.errors import BrokerError, BufferFull, ClientError
from runnel.client.offsets import start_offsets
from runnel.client.partitioner import partition_for_key
from runnel.client.producer import Producer
from runnel.client.reader import Reader
from runnel.model.ids import TopicPartition
from runnel.testing import Broker


async def read_all(cluster: Cluster, topic: str) -> list[Message]:
    partitions = [TopicPartition(topic, view.partition) for view in (await cluster.topic(topic)).partitions]
    async with Reader(cluster) as reader:
        await reader.assign(await start_offsets(cluster, partitions))
        return [message async for message in reader.messages_to_end()]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["all", "1"])
def test_sent_records_are_read(address, name, compression, acks):
    async def play() -> None:
        async with Cluster(address) as cluster:
            await Admin(cluster).create_topic(name, partitions=3)
            async with Producer(cluster, compression=compression, acks=acks) as producer:
                futures = [
                    await producer.send(
                        name,
                        b"%d" % number,
                        key=b"%d" % (number % 7),
                        headers=[("n", b"%d" % number), ("e", None)],
                    )
                    for number in range(2000)
                ]
            deliveries = [await future for future in futures]
            messages = await read_all(cluster, name)
        by_place = {(message.partition, message.offset): message for message in messages}
        assert len(messages) == len(by_place) == 2000
        for number, delivery in enumerate(deliveries):
            message = by_place[delivery.partition.partition, delivery.offset]
            assert message.value == b"%d" % number
            assert message.partition == partition_for_key(b"%d" % (number % 7), 3)
            assert list(message.headers) == [("n", b"%d" % number), ("e", None)]

    asyncio.run(play())


def test_acks_0_does_not_wait(address, name):
    async def play() -> None:
        async with Cluster(address) as cluster:
            await Admin(cluster).create_topic(name)
            async with Producer(cluster, acks="0") as producer:
                delivery = await producer.send_and_wait(name, b"x")
            assert delivery.offset == -1
            async with asyncio.timeout(20):
                while not await read_all(cluster, name):
                    await asyncio.sleep(0.02)

    asyncio.run(play())


def test_records_without_a_key_use_all_partitions(address, name):
    async def play() -> Counter[int]:
        async with Cluster(address) as cluster:
            await Admin(cluster).create_topic(name, partitions=4)
            async with Producer(cluster, batch_bytes=500) as producer:
                futures = [await producer.send(name, b"x" * 50) for _ in range(400)]
            return Counter([(await future).partition.partition for future in futures])

    spread = asyncio.run(play())
    assert set(spread) == {0, 1, 2, 3} and min(spread.values()) >= 50


def test_null_values_keys_and_explicit_partitions(address, name):
    async def play() -> None:
        async with Cluster(address) as cluster:
            await Admin(cluster).create_topic(name, partitions=2, settings={"retention.ms": "-1"})
            async with Producer(cluster) as producer:
                await producer.send_and_wait(name, None, key=b"gone", partition=1, timestamp_ms=1234)
            [message] = await read_all(cluster, name)
        assert (message.partition, message.key, message.value, message.timestamp_ms) == (
            1,
            b"gone",
            None,
            1234,
        )

    asyncio.run(play())


def test_a_missing_topic_is_created_automatically(address, name):
    async def play() -> None:
        async with Cluster(address) as cluster, Producer(cluster) as producer:
            assert (await producer.send_and_wait(name, b"x")).offset == 0

    asyncio.run(play())


@pytest.mark.runnel({"auto.create.topics.enable": False})
def test_a_missing_topic_is_an_error_without_auto_creation(runnel, name):
    async def play() -> None:
        async with Cluster(runnel.bootstrap_servers) as cluster, Producer(cluster) as producer:
            await producer.send(name, b"x")

    with pytest.raises(BrokerError, match="does not exist"):
        asyncio.run(play())


def test_a_record_that_is_too_large_fails_alone(address, name):
    async def play() -> None:
        async with Cluster(address) as cluster:
            await Admin(cluster).create_topic(name, settings={"max.message.bytes": "2000"})
            async with Producer(cluster) as producer:
                with pytest.raises(BrokerError, match="MESSAGE_TOO_LARGE"):
                    await producer.send_and_wait(name, b"x" * 5000)
                assert (await producer.send_and_wait(name, b"small")).offset == 0

    asyncio.run(play())


def test_an_invalid_partition_is_rejected(address, name):
    async def play() -> None:
        async with Cluster(address) as cluster:
            await Admin(cluster).create_topic(name, partitions=2)
            async with Producer(cluster) as producer:
                await producer.send(name, b"x", partition=2)

    with pytest.raises(BrokerError, match="has 2 partitions, numbered from 0"):
        asyncio.run(play())


def a_record(value: bytes, key: bytes | None = None) -> Record:
    return Record(0, 5, key, value)


def test_records_are_sent_together(address, name):
    async def play() -> None:
        async with Cluster(address) as cluster:
            await Admin(cluster).create_topic(name, partitions=2)
            given = [(a_record(b"%d" % number), number % 3) for number in range(30)]
            async with Producer(cluster, batch_bytes=200) as producer:
                deliveries = await producer.send_all(name, given, buffered_max=1_000_000)
                await deliveries.wait(20)
                assert await producer.send_all(name, [], buffered_max=0)
            found = {(each.partition, each.offset): each.value for each in await read_all(cluster, name)}
        for (record, partition), outcome in zip(given, deliveries.outcomes, strict=True):
            if partition == 2:
                assert isinstance(outcome, BrokerError) and "has 2 partitions" in str(outcome)
            else:
                assert isinstance(outcome, Delivery)
                assert found.pop((partition, outcome.offset)) == record.value
        assert not found

    asyncio.run(play())


def test_records_sent_together_are_refused_one_by_one_when_the_buffer_is_full(address, name):
    async def play() -> None:
        async with Cluster(address) as cluster:
            await Admin(cluster).create_topic(name)
            async with Producer(cluster) as producer:
                given = [(a_record(b"x" * 100), None)] * 5
                deliveries = await producer.send_all(name, given, buffered_max=300)
                await deliveries.wait(20)
            kinds = [type(each) for each in deliveries.outcomes]
            assert kinds == [Delivery, Delivery, Delivery, BufferFull, BufferFull]
            assert len(await read_all(cluster, name)) == 3

    asyncio.run(play())


def test_records_sent_together_fail_with_the_producer(address, name):
    async def play() -> None:
        async with Cluster(address) as cluster:
            await Admin(cluster).create_topic(name)
            producer = Producer(cluster, linger_ms=10_000)
            deliveries = await producer.send_all(name, [(a_record(b"x"), None)] * 2, buffered_max=1000)
            await deliveries.wait(0)
            assert deliveries.outcomes == [None, None]
            await producer.close(flush=False)
            await deliveries.wait(20)
            assert all("was closed" in str(each) for each in deliveries.outcomes)

    asyncio.run(play())


def test_a_full_buffer_blocks_the_sender(address, name):
    async def play() -> None:
        async with Cluster(address) as cluster:
            await Admin(cluster).create_topic(name)
            async with Producer(cluster, buffer_bytes=10_000, batch_bytes=1000) as producer:
                for _ in range(200):
                    await producer.send(name, b"x" * 500)
                    assert producer._batches.size_bytes <= 11_000
            assert len(await read_all(cluster, name)) == 200

    asyncio.run(play())


def test_a_full_buffer_refuses_records_on_request(address, name):
    async def play() -> None:
        async with Cluster(address) as cluster:
            await Admin(cluster).create_topic(name)
            async with Producer(cluster, linger_ms=10_000) as producer:
                sent = [await producer.send(name, b"x" * 500, buffered_max=1000) for _ in range(2)]
                with pytest.raises(BufferFull):
                    await producer.send(name, b"x", buffered_max=1000)
                await producer.flush()
                assert [(await each).offset for each in sent] == [0, 1]

    asyncio.run(play())


def test_records_fail_because_of_themselves_only(address, name):
    async def play() -> None:
        async with Cluster(address) as cluster:
            await Admin(cluster).create_topic(name, settings={"cleanup.policy": "compact"})
            async with Producer(cluster, linger_ms=50) as producer:
                keys = [b"a", b"b", None, b"c", None, b"d"]
                sent = [await producer.send(name, b"x", key=key) for key in keys]
                await producer.flush()
                failed = [each.exception() is not None for each in sent]
                assert failed == [key is None for key in keys]
                assert (await producer.send_and_wait(name, b"x", key=b"e")).offset == 4
            assert [message.key for message in await read_all(cluster, name)] == [
                b"a",
                b"b",
                b"c",
                b"d",
                b"e",
            ]

    asyncio.run(play())


def test_closing_fails_queued_records(address, name):
    async def play() -> None:
        async with Cluster(address) as cluster:
            await Admin(cluster).create_topic(name)
            producer = Producer(cluster, linger_ms=10_000)
            future = await producer.send(name, b"x")
            await producer.close(flush=False)
            with pytest.raises(ClientError, match="closed before"):
                await future
            with pytest.raises(ClientError, match="closed"):
                await producer.send(name, b"y")

    asyncio.run(play())


def test_restarts_neither_lose_nor_duplicate_records(name):
    async def send_forever(producer: Producer, until_s: float) -> int:
        futures: list[asyncio.Future[Delivery]] = []
        while time.monotonic() < until_s:
            futures.append(await producer.send(name, b"%d" % len(futures), key=b"k"))
            await asyncio.sleep(0.001)
        await producer.flush()
        for future in futures:
            await future
        return len(futures)

    async def play() -> None:
        async with Broker() as broker, Cluster(broker.bootstrap_servers) as cluster:
            await Admin(cluster).create_topic(name)
            async with Producer(cluster) as producer:
                sending = asyncio.create_task(send_forever(producer, time.monotonic() + 1.2))
                for _ in range(3):
                    await asyncio.sleep(0.3)
                    await asyncio.to_thread(broker.restart)
                count = await sending
            values = [message.value for message in await read_all(cluster, name)]
            assert values == [b"%d" % number for number in range(count)]

    asyncio.run(play())


def test_invalid_configs_are_rejected(address):
    cluster = Cluster(address)
    with pytest.raises(ValueError, match="acks"):
        Producer(cluster, acks="2")
    with pytest.raises(ValueError, match="idempotent"):
        Producer(cluster, acks="1", idempotent=True)


def test_a_flush_ends_when_its_last_record_cannot_be_delivered():
    async def play(broker: Broker) -> None:
        async with Cluster(broker.bootstrap_servers, timeout_s=1) as cluster:
            await Admin(cluster).create_topic("lost")
            producer = Producer(cluster, delivery_timeout_s=0.2)
            assert (await producer.send_and_wait("lost", b"kept")).offset == 0
            await asyncio.to_thread(broker.nodes[0].kill)
            failing = await producer.send("lost", b"lost", partition=0)
            async with asyncio.timeout(60):
                await producer.close()
            with pytest.raises(ClientError):
                await failing

    with Broker() as broker:
        asyncio.run(play(broker))
