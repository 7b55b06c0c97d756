"""Leaders that have failed, and what clients see before the controller has decided."""

import asyncio
from pathlib import Path

from runnel.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from runnel.model.errors import ErrorCode
from tests.broker.replicas import Replicas, until
from tests.broker.world import Client


async def leaders(client: Client, *, is_listing: bool) -> list[tuple[int, int]]:
    """(leader, error) of each partition."""
    topics = None if is_listing else [MetadataRequestTopic(name="t")]
    response: MetadataResponse = await client.ask(MetadataRequest(topics=topics), 12)
    (topic,) = (topic for topic in response.topics if topic.name == "t")
    return [(partition.leader_id, partition.error_code) for partition in topic.partitions]


def test_a_leader_that_closed_its_connections_is_not_named_until_time_is_up(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Replicas(tmp_path) as replicas:
            await replicas.create("t", replicas=(3, 1, 2))
            client = await replicas.connect(1)
            replica = replicas.partition(1)
            await until(lambda: replica.high_watermark >= 0 and not replica.is_leader)
            for is_listing in (True, False):
                assert await leaders(client, is_listing=is_listing) == [(3, 0)]
            await replicas.stop(3)
            broker = replicas.worlds[1].broker
            await until(lambda: 3 in broker.suspects)
            hidden = [(-1, ErrorCode.LEADER_NOT_AVAILABLE.code)]
            for is_listing in (True, False):
                assert await leaders(client, is_listing=is_listing) == hidden
            # The controller does not fence it: perhaps it is this broker that cannot reach the others.
            await until(lambda: not broker.suspects)
            for is_listing in (True, False):
                assert await leaders(client, is_listing=is_listing) == [(3, 0)]
            broker.suspects.connection_lost(3)
            assert not broker.suspects, "not again so soon"

    asyncio.run(scenario())


def test_a_leader_that_answers_is_no_suspect(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Replicas(tmp_path) as replicas:
            broker = replicas.worlds[1].broker
            broker.suspects.overdue(2)
            assert not broker.suspects, "it is asked first"
            broker.suspects.connection_lost(3)
            assert list(broker.suspects) == [3]
            await until(lambda: not broker.suspects)
            await replicas.fence(3)
            broker.suspects.connection_lost(3)
            assert not broker.suspects, "the controller has decided about it"

    asyncio.run(scenario())
