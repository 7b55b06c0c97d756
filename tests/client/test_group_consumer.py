"""Consumers in a group: rebalances, commits and restarts."""

import asyncio
import time
from collections.abc import Callable

import pytest

from runnel.client import group_consumer
from runnel.client.admin import Admin
from runnel.client.chunk import Message
from runnel.client.cluster import Cluster
from runnel.client.group_consumer import GroupConsumer
from runnel.client.groups import Groups
from runnel.client.offsets import list_offsets
from runnel.client.producer import Producer
from runnel.model.ids import TopicPartition
from runnel.testing import Broker

PARTITIONS = 4
TIMEOUT_S = 20.0


async def fill(cluster: Cluster, topic: str, count: int) -> None:
    await Admin(cluster).create_topic(topic, partitions=PARTITIONS)
    await send(cluster, topic, range(count))


async def send(cluster: Cluster, topic: str, numbers: range) -> None:
    async with Producer(cluster) as producer:
        for number in numbers:
            await producer.send(topic, b"%d" % number, partition=number % PARTITIONS)


async def poll_until(done: Callable[[], bool], *consumers: GroupConsumer) -> list[Message]:
    deadline_s = time.monotonic() + TIMEOUT_S
    got: list[Message] = []
    while not done():
        assert time.monotonic() < deadline_s, "the group never got there"
        for messages in await asyncio.gather(*(consumer.poll(0.1) for consumer in consumers)):
            got += messages
    return got


async def drain(count: int, *consumers: GroupConsumer) -> list[int]:
    got: list[Message] = []
    deadline_s = time.monotonic() + TIMEOUT_S
    while len(got) < count:
        assert time.monotonic() < deadline_s, f"only {len(got)} of {count} came"
        for messages in await asyncio.gather(*(consumer.poll(0.1) for consumer in consumers)):
            got += messages
    return sorted(int(message.value or b"") for message in got)


def member(cluster: Cluster, name: str, **options: object) -> GroupConsumer:
    return GroupConsumer(cluster, name, [name], heartbeat_ms=50, **options)  # type: ignore[arg-type]


def test_a_member_resumes_at_the_committed_offset(address, name):
    async def play() -> None:
        async with Cluster(address) as cluster:
            await fill(cluster, name, 100)
            async with member(cluster, name) as consumer:
                assert await drain(100, consumer) == list(range(100))
                assert len(consumer.assignment) == PARTITIONS
            await send(cluster, name, range(100, 110))
            async with member(cluster, name) as consumer:
                assert await drain(10, consumer) == list(range(100, 110))
            committed = await Groups(cluster).committed(name)
            assert sum(commit.offset for commit in committed.values()) == 110

    asyncio.run(play())


def test_partitions_are_rebalanced_when_a_member_joins_and_leaves(address, name):
    events: list[tuple[str, str, int]] = []

    def listening(who: str) -> dict[str, object]:
        return {
            "on_assigned": lambda partitions: events.append((who, "assigned", len(partitions))),
            "on_revoked": lambda partitions: events.append((who, "revoked", len(partitions))),
        }

    async def play() -> None:
        async with Cluster(address) as cluster:
            await fill(cluster, name, 40)
            async with member(cluster, name, **listening("a")) as a:
                got = await drain(40, a)
                async with member(cluster, name, **listening("b")) as b:
                    await poll_until(lambda: len(a.assignment) == len(b.assignment) == 2, a, b)
                    assert not set(a.assignment) & set(b.assignment)
                    view = await Groups(cluster).describe(name)
                    assert (view.state, view.assignor, len(view.members)) == ("Stable", "range", 2)
                    owned = [partition for view in view.members for partition in view.partitions]
                    assert sorted(owned) == [TopicPartition(name, number) for number in range(PARTITIONS)]
                    await send(cluster, name, range(40, 80))
                    got += await drain(40, a, b)
                await poll_until(lambda: len(a.assignment) == PARTITIONS, a)
            assert got == list(range(80))

    asyncio.run(play())
    assert [event for event in events if event[0] == "a"] == [
        ("a", "assigned", 4),
        ("a", "revoked", 4),
        ("a", "assigned", 2),
        ("a", "revoked", 2),
        ("a", "assigned", 4),
    ]


def test_more_members_than_partitions(address, name):
    async def play() -> None:
        async with Cluster(address) as cluster:
            await fill(cluster, name, 8)
            consumers = [member(cluster, name) for _ in range(PARTITIONS + 1)]
            try:
                await poll_until(
                    lambda: sorted(len(c.assignment) for c in consumers) == [0] + [1] * PARTITIONS, *consumers
                )
                idle = [consumer for consumer in consumers if not consumer.assignment]
                assert len(idle) == 1
                assert await idle[0].poll(0.05) == []
            finally:
                for consumer in consumers:
                    await consumer.close()

    asyncio.run(play())


def test_only_consumed_messages_are_committed(address, name):
    async def play() -> None:
        async with Cluster(address) as cluster:
            await fill(cluster, name, 40)
            async with member(cluster, name) as consumer:
                messages: list[Message] = []
                while len(messages) < 7:
                    messages += await consumer.poll(1, 7 - len(messages))
            committed = await Groups(cluster).committed(name)
            assert sum(commit.offset for commit in committed.values()) == 7

    asyncio.run(play())


def test_messages_that_are_given_back_are_not_committed(address, name):
    async def play() -> None:
        async with Cluster(address) as cluster:
            await Admin(cluster).create_topic(name, partitions=1)
            async with Producer(cluster) as producer:
                for number in range(10):
                    await producer.send(name, b"%d" % number)
            read: list[Message] = []
            async with member(cluster, name) as consumer:
                while len(read) < 5:
                    read += await consumer.poll(1.0, 5 - len(read))
                consumer.give_back(read[3])
            async with member(cluster, name) as another:
                assert await drain(7, another) == [3, 4, 5, 6, 7, 8, 9]

    asyncio.run(play())


def test_latest_starts_at_the_end(address, name):
    async def play() -> None:
        async with Cluster(address) as cluster:
            await fill(cluster, name, 20)
            async with member(cluster, name, start="latest") as consumer:
                await poll_until(lambda: bool(consumer.assignment), consumer)
                await send(cluster, name, range(20, 24))
                assert await drain(4, consumer) == [20, 21, 22, 23]

    asyncio.run(play())


def test_a_static_member_rejoins_without_a_rebalance(address, name):
    async def play() -> None:
        async with Cluster(address) as cluster:
            await fill(cluster, name, 4)
            generations = []
            for _ in range(2):
                async with member(cluster, name, instance_id="one") as consumer:
                    await poll_until(lambda: bool(consumer.assignment), consumer)
                    generations.append(consumer._membership.generation_id)
            view = await Groups(cluster).describe(name)
            assert [seen.instance_id for seen in view.members] == ["one"]
            assert generations[0] == generations[1]

    asyncio.run(play())


def test_leaving_during_a_join_does_not_block(address, name):
    async def play() -> None:
        async with Cluster(address) as cluster:
            await fill(cluster, name, 4)
            async with member(cluster, name) as a:
                await poll_until(lambda: bool(a.assignment), a)
                b = member(cluster, name)
                # b's join now waits for a, which does not poll.
                assert await b.poll(0.2) == []
                async with asyncio.timeout(10):
                    await b.close()
                await poll_until(lambda: len(a.assignment) == PARTITIONS, a)

    asyncio.run(play())


def test_a_partition_is_assigned_once_its_position_is_known(address, name, monkeypatch):
    async def play() -> None:
        may_go_on = asyncio.Event()

        async def slow_list_offsets(*arguments):
            await may_go_on.wait()
            return await list_offsets(*arguments)

        monkeypatch.setattr(group_consumer, "list_offsets", slow_list_offsets)
        async with Cluster(address) as cluster:
            await fill(cluster, name, 4)
            async with member(cluster, name) as consumer:
                while not consumer.member_id:
                    await consumer.poll(0.1)
                assert await consumer.poll(1.0) == []
                assert consumer.assignment == []
                may_go_on.set()
                await poll_until(lambda: len(consumer.assignment) == PARTITIONS, consumer)
                assert sum(map(consumer.next_offset, consumer.assignment)) >= 0

    asyncio.run(play())


def test_the_group_survives_a_broker_restart(name):
    async def play() -> None:
        async with Broker() as broker, Cluster(broker.bootstrap_servers) as cluster:
            await fill(cluster, name, 20)
            async with member(cluster, name, commit_every_ms=0) as consumer:
                got = await drain(20, consumer)
                await consumer.commit()
                await asyncio.to_thread(broker.restart)
                await send(cluster, name, range(20, 30))
                got += await drain(10, consumer)
                assert got == list(range(30))

    asyncio.run(play())


def test_new_partitions_trigger_a_rebalance(address, name, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("runnel.client.group_consumer.METADATA_CHECK_INTERVAL_S", 0.1)

    async def play() -> None:
        async with Cluster(address) as cluster:
            await fill(cluster, name, 4)
            async with member(cluster, name) as consumer:
                await poll_until(lambda: len(consumer.assignment) == PARTITIONS, consumer)
                await Admin(cluster).add_partitions(name, PARTITIONS + 2)
                await poll_until(lambda: len(consumer.assignment) == PARTITIONS + 2, consumer)

    asyncio.run(play())
