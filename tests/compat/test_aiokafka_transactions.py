"""aiokafka with the original transaction protocol: writes, offset commits and fencing."""

import asyncio

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import ProducerFenced

from tests.compat.test_aiokafka import TIMEOUT_S, consumer, send, take


def a_producer(bootstrap: str, transactional_id: str) -> AIOKafkaProducer:
    return AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)


async def values(bootstrap: str, topic: str, isolation: str, count: int) -> list[bytes]:
    async with consumer(bootstrap, None, isolation_level=isolation) as reader:
        reader.assign([TopicPartition(topic, 0)])
        return [record.value for record in await take(reader, count)]


def test_read_committed_sees_complete_transactions(bootstrap, topic) -> None:
    async def story() -> None:
        async with a_producer(bootstrap, f"x-{topic}") as producer:
            async with producer.transaction():
                await producer.send_and_wait(topic, b"a")
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction():
                    await producer.send_and_wait(topic, b"b")
                    raise ZeroDivisionError
            async with producer.transaction():
                await producer.send_and_wait(topic, b"c")
        assert await values(bootstrap, topic, "read_committed", 2) == [b"a", b"c"]
        assert await values(bootstrap, topic, "read_uncommitted", 3) == [b"a", b"b", b"c"]

    asyncio.run(story())


def test_offsets_are_committed_with_the_transaction(bootstrap, topic, group) -> None:
    partition = TopicPartition(topic, 0)

    async def story() -> None:
        await send(bootstrap, topic, [b"%d" % number for number in range(9)])
        async with a_producer(bootstrap, f"x-{topic}") as producer, consumer(bootstrap, group) as reader:
            reader.assign([partition])
            await producer.begin_transaction()
            await producer.send_offsets_to_transaction({partition: 4}, group)
            await producer.abort_transaction()
            assert await reader.committed(partition) is None
            async with producer.transaction():
                await producer.send_offsets_to_transaction({partition: 5}, group)
            # The marker of __consumer_offsets is written after the producer's commit is acknowledged.
            async with asyncio.timeout(TIMEOUT_S):
                while await reader.committed(partition) != 5:
                    await asyncio.sleep(0.05)

    asyncio.run(story())


def test_a_zombie_is_fenced(bootstrap, topic) -> None:
    async def story() -> None:
        zombie = a_producer(bootstrap, f"x-{topic}")
        await zombie.start()
        await zombie.begin_transaction()
        await zombie.send_and_wait(topic, b"zombie")
        async with a_producer(bootstrap, f"x-{topic}") as heir, heir.transaction():
            await heir.send_and_wait(topic, b"heir")
        with pytest.raises(ProducerFenced):
            await zombie.commit_transaction()
        await zombie.stop()
        assert await values(bootstrap, topic, "read_committed", 1) == [b"heir"]

    asyncio.run(story())
