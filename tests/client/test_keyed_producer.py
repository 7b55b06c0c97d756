"""Records with idempotency keys: each is stored once, also when the leader is killed while they are sent."""

import asyncio

import pytest

from runnel.batch.records import IDEMPOTENCY_KEY_HEADER, Record
from runnel.client import keyed_producer
from runnel.client.accumulator import Delivery
from runnel.client.admin import Admin
from runnel.client.cluster import Cluster
from runnel.client.errors import BrokerError, BufferFull, OutcomeUnknown
from runnel.client.keyed_producer import KeyedProducer
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition
from runnel.testing import Broker

SETTINGS = {"dedup.window.ms": "600000"}


def producer_of(cluster: Cluster, delivery_timeout_s: float = 60.0) -> KeyedProducer:
    return KeyedProducer(cluster, buffer_bytes=2**20, delivery_timeout_s=delivery_timeout_s)


def record(key: str, value: str) -> Record:
    return Record(0, 1_700_000_000_000, None, value.encode(), [(IDEMPOTENCY_KEY_HEADER, key.encode())])


def test_many_records_are_in_flight_and_keep_their_order(address: str, name: str) -> None:
    async def play() -> None:
        async with Cluster(address) as cluster:
            await Admin(cluster).create_topic(name, settings=SETTINGS)
            target, producer = TopicPartition(name, 0), producer_of(cluster)
            for _ in range(2):
                sent = [await producer.send(target, record(f"k{each}", f"v{each}")) for each in range(500)]
                assert [(await each).offset for each in sent] == list(range(500))
            await producer.flush()
            await producer.close()

    asyncio.run(play())


def test_refusals_are_not_repeated(address: str, name: str) -> None:
    async def refused(producer: KeyedProducer, target: TopicPartition, sent: Record) -> ErrorCode:
        with pytest.raises(BrokerError) as failure:
            await (await producer.send(target, sent))
        return failure.value.error

    async def play() -> None:
        async with Cluster(address) as cluster:
            await Admin(cluster).create_topic(name, settings={**SETTINGS, "dedup.keys.max": "1"})
            target, producer = TopicPartition(name, 0), producer_of(cluster)
            delivery = await (await producer.send(target, record("a", "1")))
            assert delivery.offset == 0 and delivery.timestamp_ms > 1_700_000_000_000
            assert await refused(producer, target, record("a", "2")) is ErrorCode.DUPLICATE_RESOURCE
            assert await refused(producer, target, record("b", "1")) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
            missing = TopicPartition(name, 5)
            impatient = producer_of(cluster, 0.0)
            with pytest.raises(Exception, match="numbered from 0"):
                await (await impatient.send(missing, record("c", "1")))

    asyncio.run(play())


def test_room_is_limited(address: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        async with Cluster(address) as cluster:
            await Admin(cluster).create_topic(name, settings=SETTINGS)
            target, producer = TopicPartition(name, 0), producer_of(cluster)
            first = await producer.send(target, record("a", "x" * 1000))
            with pytest.raises(BufferFull):
                await producer.send(target, record("b", "1"), buffered_max=500)
            monkeypatch.setattr(keyed_producer, "IN_FLIGHT_MAX", 1)
            second = await producer.send(target, record("b", "1"), buffered_max=2**20)
            assert first.done() and (await second).offset == 1

    asyncio.run(play())


def test_a_producer_that_is_closed_does_not_know_what_was_written(address: str, name: str) -> None:
    async def play() -> None:
        async with Cluster(address) as cluster:
            await Admin(cluster).create_topic(name, settings=SETTINGS)
            producer = producer_of(cluster)
            sent = await producer.send(TopicPartition(name, 0), record("a", "1"))
            await producer.close()
            with pytest.raises(OutcomeUnknown) as failure:
                await sent
            assert failure.value.has_key

    asyncio.run(play())


def test_leaders_are_killed_while_records_are_sent() -> None:
    count = 400

    async def play(brokers: Broker) -> tuple[list[Delivery], list[Delivery]]:
        async with Cluster(brokers.bootstrap_servers) as cluster:
            await Admin(cluster).create_topic("t", partitions=2, settings=SETTINGS)
            producer = producer_of(cluster)

            async def send(number: int) -> "asyncio.Future[Delivery]":
                return await producer.send(
                    TopicPartition("t", number % 2), record(f"k{number}", f"v{number}")
                )

            sent = []
            for number in range(count):
                sent.append(await send(number))
                if number in (100, 200, 300):
                    # Records are in flight; what was acknowledged stays.
                    node = brokers.nodes[number // 100 - 1]
                    await asyncio.to_thread(node.kill)
                    await asyncio.gather(*sent)
                    await asyncio.to_thread(node.start)
            deliveries = list(await asyncio.gather(*sent))
            again = await asyncio.gather(*[await send(number) for number in range(count)])
            return deliveries, list(again)

    with Broker(nodes=3) as brokers:
        deliveries, again = asyncio.run(play(brokers))
        assert again == deliveries
        with brokers.client() as client:
            found = {(each.partition, each.offset): (each.value or b"").decode() for each in client.read("t")}
    assert found == {
        (each.partition.partition, each.offset): f"v{number}" for number, each in enumerate(deliveries)
    }
    assert len(found) == count
