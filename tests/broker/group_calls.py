"""Requests of a group member, in any version."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from runnel.messages.find_coordinator import FindCoordinatorRequest
from runnel.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from runnel.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from runnel.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from runnel.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from runnel.model.errors import ErrorCode
from tests.broker.world import BrokerWorld, Client

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1",
    "offsets.topic.num.partitions": "3",
}
NONE, REQUIRED = ErrorCode.NONE.code, ErrorCode.MEMBER_ID_REQUIRED.code

Scenario = Callable[[BrokerWorld, Client], Awaitable[None]]


def play(folder: Path, scenario: Scenario, **settings: str) -> None:
    """Run a scenario against a new broker, which is shut down cleanly."""

    async def run() -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        async with BrokerWorld(folder, {**SETTINGS, **named}) as world:
            if "t" not in world.broker.metadata.image.topics:
                await world.create("t", partitions=2)
            client = await world.connect()
            await client.ask(FindCoordinatorRequest(key="g"), 1)
            await loaded(world)
            await scenario(world, client)

    asyncio.run(run())


async def loaded(world: BrokerWorld) -> None:
    """Wait until every shard that has records is loaded."""
    while not all(driver.is_loaded for driver in world.broker.groups._drivers.values()):
        await asyncio.sleep(0)


def join_request(member_id: str = "", instance_id: str | None = None, group: str = "g") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", b"wishes")],
    )


async def join(client: Client, version: int = 9, member_id: str = "", instance_id: str | None = None) -> Any:
    """Join, with a second request after MEMBER_ID_REQUIRED."""
    reply = await client.ask(join_request(member_id, instance_id), version)
    if reply.error_code == REQUIRED:
        reply = await client.ask(join_request(reply.member_id, instance_id), version)
    return reply


def sync_request(joined: Any, work: dict[str, bytes], instance_id: str | None = None) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(member, share) for member, share in work.items()],
    )


def commit_request(
    offsets: dict[int, int],
    *,
    group: str = "g",
    topic: str = "t",
    topic_id: bytes = bytes(16),
    generation: int = -1,
    member_id: str = "",
    metadata: str | None = None,
    retention_ms: int = -1,
) -> OffsetCommitRequest:
    parts = [
        OffsetCommitRequestPartition(partition, offset, 7, metadata) for partition, offset in offsets.items()
    ]
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        retention_time_ms=retention_ms,
        topics=[OffsetCommitRequestTopic(topic, topic_id, parts)],
    )


def codes(reply: Any) -> list[int]:
    """The errors of an OffsetCommit, partition by partition."""
    return [part.error_code for topic in reply.topics for part in topic.partitions]


async def fetch(client: Client, *partitions: int, group: str = "g", topic: str = "t") -> dict[int, int]:
    """Committed offsets of a group in a topic; of all partitions if none are given."""
    topics = [OffsetFetchRequestTopics(topic, partition_indexes=list(partitions))] if partitions else None
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=topics)])
    reply = await client.ask(asked, 9)
    assert reply.groups[0].error_code == NONE
    return {
        part.partition_index: part.committed_offset
        for answered in reply.groups[0].topics
        if answered.name == topic
        for part in answered.partitions
    }
