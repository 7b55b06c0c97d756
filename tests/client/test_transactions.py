"""The transactional producer and the administration of transactions."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from runnel.client import (
    Admin,
    BrokerError,
    ClientError,
    Cluster,
    NoBrokerAvailable,
    Reader,
    TransactionalProducer,
    Transactions,
)
from runnel.client.cluster import Node
from runnel.client.offsets import READ_COMMITTED, READ_UNCOMMITTED, start_offsets
from runnel.model.ids import TopicPartition
from runnel.testing import Broker
from tests.client.hanging import broker_without_verification, leave_hanging, set_transaction_version

EVER = 2**62


def play(address: str, scenario: Callable[[Cluster], Awaitable[None]]) -> None:
    async def run() -> None:
        async with Cluster(address) as cluster:
            await scenario(cluster)

    asyncio.run(run())


async def values(cluster: Cluster, topic: str, isolation: int = READ_COMMITTED) -> list[bytes | None]:
    count = len((await cluster.topic(topic)).partitions)
    partitions = [TopicPartition(topic, number) for number in range(count)]
    async with Reader(cluster, isolation=isolation) as reader:
        await reader.assign(await start_offsets(cluster, partitions))
        return sorted([message.value async for message in reader.messages_to_end()], key=str)


@pytest.fixture(scope="module", params=[1, 2])
def versioned(request: pytest.FixtureRequest):
    """The address of a broker with transaction.version 1 or 2 (KIP-890)."""
    with Broker({"transaction.state.log.num.partitions": 2}) as broker:
        set_transaction_version(broker, request.param)
        yield broker.bootstrap_servers


def test_transactions_are_atomic(versioned, name):
    async def scenario(cluster: Cluster) -> None:
        await Admin(cluster).create_topic(name, partitions=2)
        async with TransactionalProducer(cluster, name) as producer:
            for number in range(3):
                async with producer.transaction():
                    await producer.send(name, b"kept %d" % number, partition=0)
                    await producer.send(name, b"kept too %d" % number, partition=1)
                with pytest.raises(ZeroDivisionError):
                    async with producer.transaction():
                        await producer.send_and_wait(name, b"dropped %d" % number, partition=number % 2)
                        raise ZeroDivisionError
            async with producer.transaction():
                pass
        kept = [b"kept %d" % number for number in range(3)] + [b"kept too %d" % number for number in range(3)]
        assert await values(cluster, name) == sorted(kept)
        everything = await values(cluster, name, READ_UNCOMMITTED)
        assert everything == sorted(kept + [b"dropped %d" % number for number in range(3)])

    play(versioned, scenario)


def test_a_failed_record_aborts_its_transaction_only(versioned, name):
    async def scenario(cluster: Cluster) -> None:
        await Admin(cluster).create_topic(name, settings={"max.message.bytes": "2000"})
        async with TransactionalProducer(cluster, name) as producer:
            with pytest.raises(BrokerError, match="MESSAGE_TOO_LARGE"):
                async with producer.transaction():
                    await producer.send_and_wait(name, b"before")
                    await producer.send(name, b"x" * 5000)
            async with producer.transaction():
                await producer.send(name, b"after")
        assert await values(cluster, name) == [b"after"]

    play(versioned, scenario)


def test_a_new_producer_fences_the_previous_one(versioned, name):
    async def scenario(cluster: Cluster) -> None:
        await Admin(cluster).create_topic(name)
        zombie, heir = TransactionalProducer(cluster, name), TransactionalProducer(cluster, name)
        await zombie.begin()
        await zombie.send_and_wait(name, b"half")
        async with heir, heir.transaction():
            await heir.send(name, b"whole")
        with pytest.raises(BrokerError, match="INVALID_PRODUCER_EPOCH"):
            await zombie.send_and_wait(name, b"too late")
        with pytest.raises(BrokerError, match="fenced"):
            await zombie.commit()
        await zombie.close()
        assert await values(cluster, name) == [b"whole"]

    play(versioned, scenario)


def test_order_of_calls(versioned, name):
    async def scenario(cluster: Cluster) -> None:
        await Admin(cluster).create_topic(name)
        async with TransactionalProducer(cluster, name) as producer:
            with pytest.raises(ClientError, match="no open transaction"):
                await producer.send(name, b"x")
            await producer.begin()
            with pytest.raises(ClientError, match="already open"):
                await producer.begin()
            await producer.send_and_wait(name, b"left open")
        view = await Transactions(cluster).describe(name)
        assert (view.state, view.partitions, view.started_ms) == ("CompleteAbort", [], None)

    play(versioned, scenario)


def test_another_process_ends_a_transaction(versioned, name):
    async def scenario(cluster: Cluster) -> None:
        await Admin(cluster).create_topic(name)
        transactions = Transactions(cluster)
        for outcome in (transactions.commit, transactions.abort):
            producer = TransactionalProducer(cluster, name)
            await producer.begin()
            await producer.send_and_wait(name, outcome.__name__.encode())
            view = await transactions.describe(name)
            assert (view.state, view.partitions) == ("Ongoing", [TopicPartition(name, 0)])
            await outcome(name, view.producer_id, view.producer_epoch)
            # A retry after a lost response.
            await outcome(name, view.producer_id, view.producer_epoch)
        assert await values(cluster, name) == [b"commit"]

    play(versioned, scenario)


class WithDeadBroker(Cluster):
    """A cluster whose metadata contains an unreachable broker."""

    async def refresh(self, topics: Any, *, allow_auto_create: bool = False) -> Any:
        answer = await super().refresh(topics, allow_auto_create=allow_auto_create)
        self.nodes[99] = Node(99, "127.0.0.1", 1)
        return answer


def test_listing_skips_unreachable_brokers(versioned, name):
    async def scenario(cluster: Cluster) -> None:
        await Transactions(cluster).init_producer_id(name, timeout_ms=1000)
        # Long enough for the broker that is there, also on a busy machine.
        async with WithDeadBroker(versioned, timeout_s=3) as broken:
            transactions = Transactions(broken)
            [found] = await transactions.find(pattern=name, timeout_s=30)
            assert found.transactional_id == name
            broken.timeout_s = 60
            [found] = await transactions.find(pattern=name, timeout_s=2)
            assert found.transactional_id == name
            broken.timeout_s = 0.5
            with pytest.raises(NoBrokerAvailable):
                await transactions.find(pattern=name)

    play(versioned, scenario)


def test_listing_by_state_producer_duration_and_pattern(versioned, name):
    async def scenario(cluster: Cluster) -> None:
        await Admin(cluster).create_topic(name)
        transactions = Transactions(cluster)
        async with TransactionalProducer(cluster, f"{name}-open") as producer:
            await transactions.init_producer_id(f"{name}-idle", timeout_ms=1000)
            await producer.begin()
            await producer.send_and_wait(name, b"x")
            mine = f"{name}-.*"

            async def found(**filters: Any) -> list[str]:
                views = await transactions.find(**{"pattern": mine, **filters})
                return [view.transactional_id.removeprefix(f"{name}-") for view in views]

            assert await found() == ["idle", "open"]
            assert await found(states=["Ongoing"]) == ["open"]
            view = await transactions.describe(f"{name}-open")
            assert await found(producer_ids=[view.producer_id]) == ["open"]
            assert await found(longer_than_ms=EVER, states=["Ongoing"]) == []
            assert await found(pattern=f"{name}-i.*") == ["idle"]
            with pytest.raises(BrokerError, match="unknown state Nonsense"):
                await found(states=["Nonsense"])

    play(versioned, scenario)


def test_only_transactions_unknown_to_the_coordinator_are_hanging(name):
    async def scenario(cluster: Cluster) -> None:
        await Admin(cluster).create_topic(name, partitions=2)
        here, there = TopicPartition(name, 0), TopicPartition(name, 1)
        transactions = Transactions(cluster)
        async with TransactionalProducer(cluster, "known") as producer, producer.transaction():
            await producer.send_and_wait(name, b"open", partition=0)
            offset = await leave_hanging(cluster, here, 4711)
            # The coordinator knows the transactional id, but not this partition.
            holder = await transactions.describe("known")
            await leave_hanging(cluster, there, holder.producer_id, name="known", timestamp_ms=5000)
            found = await transactions.hanging([here, there], silent_since_ms=EVER)
            seen = [(one.producer.partition, one.producer.producer_id, one.transactional_id) for one in found]
            assert seen == [(here, 4711, None), (there, holder.producer_id, "known")]
            assert found[0].producer.start_offset == offset
            # Recent writes are skipped: the coordinator may be about to be updated.
            [old] = await transactions.hanging([here, there], silent_since_ms=5000)
            assert old.producer.producer_id == 4711
            for one in found:
                await transactions.abort_hanging(one.producer)
            assert await transactions.hanging([here, there], silent_since_ms=EVER) == []
        assert await values(cluster, name) == [b"open"]

    with broker_without_verification() as broker:
        play(broker.bootstrap_servers, scenario)
