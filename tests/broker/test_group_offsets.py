"""Committed offsets over the wire: every version, errors, and disk faults."""

import asyncio
import errno
from pathlib import Path

import pytest

from runnel.broker.runtime.group_coordinator import GroupCoordinator
from runnel.disk.os_files import OsFile
from runnel.messages.delete_groups import DeleteGroupsRequest
from runnel.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from runnel.messages.list_groups import ListGroupsRequest
from runnel.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from runnel.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from runnel.model.errors import ApiError, ErrorCode
from tests.broker.group_calls import NONE, codes, commit_request, fetch, join, loaded, play, sync_request
from tests.broker.world import BrokerWorld, Client

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code
UNKNOWN_ID = ErrorCode.UNKNOWN_TOPIC_ID.code


@pytest.mark.parametrize("version", range(2, 11))
def test_commits_in_every_version(tmp_path: Path, version: int) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        topic_id = world.topic_id("t")
        request = commit_request({0: 5, 1: 6, 9: 7}, topic_id=topic_id, metadata="a note – ünïcode")
        assert codes(await client.ask(request, version)) == [NONE, NONE, UNKNOWN]
        nowhere = commit_request({0: 5}, topic="nowhere", topic_id=b"an unknown topic")
        expected = UNKNOWN_ID if version >= 10 else UNKNOWN
        assert codes(await client.ask(nowhere, version)) == [expected]
        reply = await client.ask(OffsetFetchRequest(group_id="g", topics=None), 7)
        (topic,) = reply.topics
        epoch = 7 if version >= 6 else -1
        assert [
            (part.partition_index, part.committed_offset, part.committed_leader_epoch, part.metadata)
            for part in topic.partitions
        ] == [(0, 5, epoch, "a note – ünïcode"), (1, 6, epoch, "a note – ünïcode")]

    play(tmp_path, scenario)


def test_a_retention_without_end_is_accepted(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        request = commit_request({0: 5})
        request.retention_time_ms = 2**63 - 1
        assert codes(await client.ask(request, 2)) == [NONE]

    play(tmp_path, scenario)


@pytest.mark.parametrize("version", range(1, 11))
def test_fetches_in_every_version(tmp_path: Path, version: int) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        await client.ask(commit_request({0: 5}, metadata="note"), 8)
        topic_id = world.topic_id("t")
        if version < 8:
            request = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic("t", [0, 1])])
            topics = (await client.ask(request, version)).topics
        else:
            asked = [
                OffsetFetchRequestTopics("t", topic_id, [0, 1]),
                OffsetFetchRequestTopics("nowhere", b"an unknown topic", [0]),
            ]
            groups = [OffsetFetchRequestGroup("g", topics=asked), OffsetFetchRequestGroup("h", topics=None)]
            reply = await client.ask(OffsetFetchRequest(groups=groups, require_stable=True), version)
            assert [group.error_code for group in reply.groups] == [NONE, NONE]
            assert reply.groups[1].topics == []
            *topics, nowhere = reply.groups[0].topics
            assert nowhere.partitions[0].error_code == (UNKNOWN_ID if version >= 10 else NONE)
            assert nowhere.partitions[0].committed_offset == -1
        (topic,) = topics
        assert [(part.committed_offset, part.metadata, part.error_code) for part in topic.partitions] == [
            (5, "note", NONE),
            (-1, "", NONE),
        ]

    play(tmp_path, scenario)


def test_only_members_of_the_generation_commit(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        member = await join(client)
        await client.ask(sync_request(member, {}), 5)
        assert codes(await client.ask(commit_request({0: 1}), 8)) == [ErrorCode.UNKNOWN_MEMBER_ID.code]
        stale = commit_request({0: 1, 9: 1}, generation=0, member_id=member.member_id)
        assert codes(await client.ask(stale, 8)) == [ErrorCode.ILLEGAL_GENERATION.code, UNKNOWN]
        right = commit_request({0: 1}, generation=1, member_id=member.member_id)
        assert codes(await client.ask(right, 8)) == [NONE]
        unknown = commit_request({0: 1}, group="unknown", generation=1)
        assert codes(await client.ask(unknown, 9)) == [ErrorCode.GROUP_ID_NOT_FOUND.code]

    play(tmp_path, scenario)


def test_offsets_survive_a_restart(tmp_path: Path) -> None:
    async def before(world: BrokerWorld, client: Client) -> None:
        for offset in range(100):
            await client.ask(commit_request({0: offset}), 8)
        await client.ask(commit_request({0: 1}, group="gone"), 8)
        await client.ask(DeleteGroupsRequest(["gone"]), 2)

    async def after(world: BrokerWorld, client: Client) -> None:
        assert await fetch(client) == {0: 99}
        groups = (await client.ask(ListGroupsRequest(), 4)).groups
        assert [group.group_id for group in groups] == ["g"]

    play(tmp_path, before)
    play(tmp_path, after)


def test_coordinator_load_in_progress(tmp_path: Path) -> None:
    async def before(world: BrokerWorld, client: Client) -> None:
        await client.ask(commit_request({0: 1}), 8)

    async def after(world: BrokerWorld, client: Client) -> None:
        world.broker.groups.stop()
        world.broker.groups = GroupCoordinator(world.broker)
        world.broker.groups.start()
        with pytest.raises(ApiError) as error:
            world.broker.groups.driver_of("g")
        assert error.value.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        with pytest.raises(ApiError):
            world.broker.groups.all_loaded()
        await loaded(world)
        assert await fetch(client) == {0: 1}

    play(tmp_path, before)
    play(tmp_path, after)


def test_full_disk_rejects_commits_and_keeps_previous_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space left on device")

    async def scenario(world: BrokerWorld, client: Client) -> None:
        assert codes(await client.ask(commit_request({0: 1}), 8)) == [NONE]
        with monkeypatch.context() as full:
            full.setattr(OsFile, "pwritev", no_space)
            refused = codes(await client.ask(commit_request({0: 2, 1: 2}), 8))
            assert refused == [ErrorCode.NOT_COORDINATOR.code] * 2
            assert await fetch(client) == {0: 1}
        assert codes(await client.ask(commit_request({1: 3}), 8)) == [NONE]
        assert await fetch(client) == {0: 1, 1: 3}

    async def after(world: BrokerWorld, client: Client) -> None:
        assert await fetch(client) == {0: 1, 1: 3}

    play(tmp_path, scenario)
    play(tmp_path, after)


def test_too_large_commit_is_rejected_as_a_whole(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        await world.create("wide", partitions=300)
        request = commit_request(dict.fromkeys(range(300), 1), topic="wide", metadata="x" * 4096)
        assert set(codes(await client.ask(request, 8))) == {ErrorCode.UNKNOWN_SERVER_ERROR.code}
        assert await fetch(client, topic="wide") == {}

    play(tmp_path, scenario)


def test_fetch_waits_for_pending_commits(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        assert codes(await client.ask(commit_request({0: 1}), 8)) == [NONE]
        partition = world.broker.groups.driver_of("g").partition
        assert partition.log.durable_offset == partition.log.written_offset > 0
        member = await join(client)
        given = await client.ask(sync_request(member, {member.member_id: b"all"}), 5)
        assert bytes(given.assignment) == b"all"
        assert partition.log.durable_offset == partition.log.written_offset > 1

    play(tmp_path, scenario, log_flush_interval_messages="1")


def test_commit_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        never: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        monkeypatch.setattr(world.disk, "sync", lambda log: never)
        refused = codes(await client.ask(commit_request({0: 1}), 8))
        assert refused == [ErrorCode.COORDINATOR_NOT_AVAILABLE.code]
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)])
        reply = await client.ask(asked, 9)
        assert reply.groups[0].error_code == ErrorCode.NOT_COORDINATOR.code
        monkeypatch.undo()

    play(tmp_path, scenario, log_flush_interval_messages="1", offsets_commit_timeout_ms="50")


def test_offsets_lost_by_the_log_are_not_served_from_memory(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        await client.ask(commit_request({0: 1}), 8)
        await client.ask(commit_request({0: 2}), 8)
        partition = world.broker.groups.driver_of("g").partition
        partition.log.truncate_to(1)
        with pytest.raises(ApiError):
            world.broker.groups.driver_of("g")
        async with asyncio.timeout(20):
            while not partition.is_leader:
                await asyncio.sleep(0)
        await loaded(world)
        assert await fetch(client) == {0: 1}
        assert codes(await client.ask(commit_request({0: 3}), 8)) == [NONE]
        assert await fetch(client) == {0: 3}

    play(tmp_path, scenario)


def test_offsets_are_deleted_with_their_topic(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        await world.create("doomed")
        await client.ask(commit_request({0: 5}, topic="doomed"), 8)
        await client.ask(commit_request({0: 6}), 8)
        await client.ask(DeleteTopicsRequest(topics=[DeleteTopicState("doomed")], timeout_ms=10_000), 6)
        assert await fetch(client, 0, topic="doomed") == {0: -1}
        await world.create("doomed")
        assert await fetch(client, 0, topic="doomed") == {0: -1}
        assert await fetch(client) == {0: 6}

    play(tmp_path, scenario)


def test_offsets_are_deleted_on_request(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        await client.ask(commit_request({0: 5, 1: 6}), 8)
        parts = [OffsetDeleteRequestPartition(index) for index in (0, 9)]
        request = OffsetDeleteRequest("g", [OffsetDeleteRequestTopic("t", parts)])
        reply = await client.ask(request, 0)
        answers = [(part.partition_index, part.error_code) for part in reply.topics[0].partitions]
        assert answers == [(0, NONE), (9, UNKNOWN)]
        assert await fetch(client) == {1: 6}
        request.group_id = "unknown"
        assert (await client.ask(request, 0)).error_code == ErrorCode.GROUP_ID_NOT_FOUND.code

    play(tmp_path, scenario)


@pytest.mark.parametrize("version", range(3))
def test_groups_are_deleted_in_every_version(tmp_path: Path, version: int) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        await join(client)
        await client.ask(commit_request({0: 5}, group="done"), 8)
        reply = await client.ask(DeleteGroupsRequest(["g", "done", "unknown"]), version)
        assert [(result.group_id, result.error_code) for result in reply.results] == [
            ("g", ErrorCode.NON_EMPTY_GROUP.code),
            ("done", NONE),
            ("unknown", ErrorCode.GROUP_ID_NOT_FOUND.code),
        ]
        assert await fetch(client, group="done") == {}

    play(tmp_path, scenario)
