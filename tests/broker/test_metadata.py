"""Metadata over the wire: all topics, none, some, by id, and auto-creation."""

import asyncio
from pathlib import Path

import pytest

from runnel.broker.runtime import topic_creation
from runnel.messages.find_coordinator import FindCoordinatorRequest
from runnel.messages.metadata import MetadataRequest, MetadataRequestTopic
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import NO_ID
from tests.broker.world import BrokerWorld


def asking(*names: str, create: bool = True, **more) -> MetadataRequest:
    topics = [MetadataRequestTopic(NO_ID, name) for name in names]
    return MetadataRequest(topics, allow_auto_topic_creation=create, **more)


@pytest.mark.parametrize("version", range(14))
def test_each_version_describes_topic_and_broker(tell, version):
    async def scenario(world) -> None:
        await world.create("events", 3)
        client = await world.connect()
        response = await client.ask(asking("events"), version)
        (broker,) = response.brokers
        assert (broker.node_id, broker.host, broker.port) == (1, "127.0.0.1", world.broker.port)
        (topic,) = response.topics
        assert (topic.error_code, topic.name, topic.is_internal) == (0, "events", False)
        assert [p.partition_index for p in topic.partitions] == [0, 1, 2]
        assert all((p.leader_id, p.replica_nodes, p.isr_nodes) == (1, [1], [1]) for p in topic.partitions)
        assert topic.topic_id == (world.topic_id("events") if version >= 10 else NO_ID)
        assert response.controller_id == (1 if version >= 1 else -1)
        assert response.cluster_id == (world.broker.cluster_id if version >= 2 else None)
        assert all((p.leader_epoch >= 0) == (version >= 7) for p in topic.partitions)

    tell(scenario)


@pytest.mark.parametrize("version", [0, 1, 5, 12])
def test_all_and_none(tell, version):
    async def scenario(world) -> None:
        await world.create("a")
        await world.create("b")
        client = await world.connect()
        everything = MetadataRequest([] if version == 0 else None)
        assert {topic.name for topic in (await client.ask(everything, version)).topics} == {"a", "b"}
        if version >= 1:
            assert (await client.ask(MetadataRequest([]), version)).topics == []

    tell(scenario)


def test_topics_by_id(tell):
    async def scenario(world) -> None:
        await world.create("events")
        client = await world.connect()
        known, unknown = world.topic_id("events"), bytes(15) + b"\x07"
        request = MetadataRequest([MetadataRequestTopic(known, None), MetadataRequestTopic(unknown, None)])
        first, second = (await client.ask(request, 12)).topics
        assert (first.error_code, first.name) == (0, "events")
        assert (second.error_code, second.name, second.topic_id) == (
            ErrorCode.UNKNOWN_TOPIC_ID.code,
            None,
            unknown,
        )
        # If both are given, the id counts: the name may belong to a recreated topic.
        both = (await client.ask(MetadataRequest([MetadataRequestTopic(unknown, "other")]), 12)).topics[0]
        assert (both.error_code, both.name) == (ErrorCode.UNKNOWN_TOPIC_ID.code, None)
        assert "other" not in world.broker.metadata.image.topics
        early = (await client.ask(MetadataRequest([MetadataRequestTopic(known, "events")]), 11)).topics[0]
        assert early.error_code == ErrorCode.INVALID_REQUEST.code

    tell(scenario)


@pytest.mark.parametrize("version", [0, 5, 12])
def test_repeated_topic_is_returned_once(tell, version):
    async def scenario(world) -> None:
        await world.create("events")
        client = await world.connect()
        names = ["events", "missing", "events", "missing", "events"]
        request = MetadataRequest([MetadataRequestTopic(name=name) for name in names])
        assert [topic.name for topic in (await client.ask(request, version)).topics] == ["events", "missing"]

    tell(scenario)


def test_auto_creation(tell):
    async def scenario(world) -> None:
        client = await world.connect()
        (topic,) = (await client.ask(asking("fresh"), 12)).topics
        assert (topic.error_code, len(topic.partitions)) == (0, 4)
        again = (await client.ask(asking("fresh"), 12)).topics[0]
        assert again.topic_id == topic.topic_id != NO_ID

    tell(scenario, {"num.partitions": "4"})


def test_concurrent_auto_creation(tell):
    async def scenario(world) -> None:
        clients = [await world.connect() for _ in range(5)]
        for client in clients:
            client.send(asking("fresh", "other"), 12)
        answers = [await client.receive() for client in clients]
        assert len({(t.name, t.topic_id) for answer in answers for t in answer.topics}) == 2
        assert all(t.error_code == 0 for answer in answers for t in answer.topics)

    tell(scenario)


def test_requests_wait_once_for_a_topic_that_cannot_be_created(tell, monkeypatch):
    """As on a full disk. Other requests of a connection wait for those before them."""
    monkeypatch.setattr(topic_creation, "WAIT_MS", 300)

    async def scenario(world) -> None:
        client, loop = await world.connect(), asyncio.get_running_loop()
        unanswered = loop.create_future()
        world.broker.controller.request = lambda *_, **__: unanswered

        async def seconds(attempts: int) -> float:
            begun = loop.time()
            for _ in range(attempts):
                found = await client.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
                assert found.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE.code
            return loop.time() - begun

        assert await seconds(1) >= 0.3
        assert await seconds(10) < 1.5
        unanswered.set_exception(ApiError(ErrorCode.REQUEST_TIMED_OUT, "no controller answers"))

    tell(scenario)


def test_auto_creation_disabled_by_request_and_by_setting(tell):
    async def scenario(world) -> None:
        client = await world.connect()
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code
        if world.settings["auto.create.topics.enable"]:
            assert (await client.ask(asking("fresh", create=False), 12)).topics[0].error_code == unknown
        else:
            assert (await client.ask(asking("fresh"), 12)).topics[0].error_code == unknown
        assert "fresh" not in world.broker.metadata.image.topics

    tell(scenario)
    tell(scenario, {"auto.create.topics.enable": "false"})


@pytest.mark.parametrize("name", ["", ".", "..", "no/slash", "no space", "x" * 250])
def test_invalid_topic_names(tell, name):
    async def scenario(world) -> None:
        client = await world.connect()
        invalid, fine = (await client.ask(asking(name, "fine"), 12)).topics
        assert (invalid.error_code, invalid.partitions) == (ErrorCode.INVALID_TOPIC_EXCEPTION.code, [])
        assert fine.error_code == 0

    tell(scenario)


def test_authorized_operations(tell):
    async def scenario(world) -> None:
        await world.create("events")
        client = await world.connect()
        request = asking(
            "events", include_cluster_authorized_operations=True, include_topic_authorized_operations=True
        )
        response = await client.ask(request, 8)
        assert response.cluster_authorized_operations > 0
        assert response.topics[0].topic_authorized_operations > 0
        plain = await client.ask(asking("events"), 8)
        assert plain.topics[0].topic_authorized_operations == -(2**31)

    tell(scenario)


def test_responses_follow_the_image(tell):
    async def scenario(world) -> None:
        client = await world.connect()
        await world.create("a")
        assert (await client.ask(asking("a", create=False), 12)).topics[0].error_code == 0
        for _ in range(2):
            assert [topic.name for topic in (await client.ask(MetadataRequest(None), 12)).topics] == ["a"]
        await world.create("b", 2)
        assert len((await client.ask(asking("b", create=False), 12)).topics[0].partitions) == 2
        for version in (12, 5):
            listing = await client.ask(MetadataRequest(None), version)
            assert {topic.name: len(topic.partitions) for topic in listing.topics} == {"a": 1, "b": 2}

    tell(scenario)


def test_a_node_alone_writes_no_metadata_while_it_is_idle(tmp_path: Path) -> None:
    """Unlike a controller with other nodes, which measure their lag by the age of the last record."""

    async def run() -> None:
        async with BrokerWorld(tmp_path, {"metadata.max.idle.interval.ms": "5"}) as world:
            version = world.broker.metadata.image.version
            await asyncio.sleep(0.1)
            assert world.broker.metadata.image.version == version

    asyncio.run(run())
