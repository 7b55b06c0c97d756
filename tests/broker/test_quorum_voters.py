"""Changes of the voters of a running quorum."""

import asyncio
from pathlib import Path

import pytest

from runnel.broker.runtime import quorum_voters
from runnel.messages.add_raft_voter import AddRaftVoterRequest, Listener
from runnel.messages.remove_raft_voter import RemoveRaftVoterRequest
from runnel.model.errors import ApiError, ErrorCode
from tests.broker.quorum_world import LISTENER, Member, QuorumWorld, in_loop, until
from tools.broker_process import free_port


def add_request(member: Member, timeout_ms: int = 10_000) -> AddRaftVoterRequest:
    listeners = [Listener(LISTENER, "127.0.0.1", member.port)]
    return AddRaftVoterRequest(None, timeout_ms, member.id, member.key.directory_id, listeners)


def remove_request(member: Member) -> RemoveRaftVoterRequest:
    return RemoveRaftVoterRequest(None, member.id, member.key.directory_id)


async def ask(
    world: QuorumWorld, member: Member, request: AddRaftVoterRequest | RemoveRaftVoterRequest
) -> int:
    """The error code of a response."""
    channel = member.peers.channel("127.0.0.1", member.port, "test")
    response = await channel.send(request, timeout_ms=20_000)
    channel.close()
    code: int = response.error_code
    return code


@in_loop
async def test_voters_are_added_and_removed_also_the_leader(tmp_path: Path) -> None:
    async with QuorumWorld(tmp_path, 3, is_dynamic=True) as world:
        first = await world.leader()
        assert first.id == 1 and first.quorum.voters.ids == [1]
        for node_id in (2, 3):
            assert await ask(world, first, add_request(world.members[node_id])) == 0
        assert first.quorum.voters.ids == [1, 2, 3]
        await world.committed(first.append(b"of three"))
        assert all(member.quorum.voters.ids == [1, 2, 3] for member in world.members.values())
        # The leader leads until its removal is committed, and hands over.
        assert await ask(world, first, remove_request(first)) == 0
        await until(lambda: not first.quorum.is_leader)
        second = await world.leader()
        assert second.id != 1 and second.quorum.voters.ids == [2, 3]
        await world.committed(second.append(b"of two"))
        assert await first.values() == [b"of three", b"of two"]


@in_loop
async def test_voters_survive_a_restart_and_a_snapshot(tmp_path: Path) -> None:
    async with QuorumWorld(tmp_path, 3, is_dynamic=True) as world:
        first = await world.leader()
        assert await ask(world, first, add_request(world.members[2])) == 0
        await world.committed(first.append(b"x"))
        for member in list(world.members.values()):
            member.write_snapshot(first.quorum.high_watermark)
        first.append(b"y")
        await world.committed(first.quorum.end_offset)
        for member in list(world.members.values()):
            await world.kill(member)
        # Node 3 lost its log, and learns the voters from the snapshot.
        (tmp_path / "3").rename(tmp_path / "lost")
        for node_id in (1, 2, 3):
            await world.start(node_id)
        leader = await world.leader()
        await world.committed(leader.append(b"z"))
        assert world.members[3].events.installed != []
        assert all(member.quorum.voters.ids == [1, 2] for member in world.members.values())


@in_loop
async def test_changes_that_are_refused(tmp_path: Path) -> None:
    async with QuorumWorld(tmp_path, 2, is_dynamic=True) as world:
        leader = await world.leader()
        changes = leader.quorum.voter_changes
        other = world.members[2]
        assert await ask(world, leader, add_request(leader)) == ErrorCode.DUPLICATE_VOTER.code
        assert await ask(world, leader, remove_request(other)) == ErrorCode.VOTER_NOT_FOUND.code
        # The last voter stays.
        assert await ask(world, leader, remove_request(leader)) == ErrorCode.VOTER_NOT_FOUND.code
        unknown = add_request(other, timeout_ms=200)
        unknown.voter_directory_id = b"other directory."
        assert await ask(world, leader, unknown) == ErrorCode.REQUEST_TIMED_OUT.code
        with pytest.raises(ApiError, match="listener"):
            await changes.add(type(other.voter)(other.key), 100, waits=True)


@in_loop
async def test_a_new_voter_is_not_awaited_for_long_and_only_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quorum_voters, "ADD_TIMEOUT_MS_MAX", 200)
    async with QuorumWorld(tmp_path, 2, is_dynamic=True) as world:
        leader = await world.leader()
        unknown = add_request(world.members[2], timeout_ms=2**31 - 1)
        unknown.voter_directory_id = b"other directory."
        first = asyncio.ensure_future(ask(world, leader, unknown))
        await until(lambda: leader.quorum.voter_changes._is_adding)
        assert await ask(world, leader, add_request(world.members[2])) == ErrorCode.REQUEST_TIMED_OUT.code
        assert await first == ErrorCode.REQUEST_TIMED_OUT.code
        assert await ask(world, leader, add_request(world.members[2])) == ErrorCode.NONE.code


@in_loop
async def test_a_static_quorum_becomes_dynamic(tmp_path: Path) -> None:
    async with QuorumWorld(tmp_path, 3) as world:
        leader = await world.leader()
        with pytest.raises(ApiError, match=r"kraft\.version"):
            await leader.quorum.voter_changes.remove(leader.key, 100)

        async def is_upgraded() -> bool:
            try:
                await leader.quorum.voter_changes.upgrade(5000)
            except ApiError as error:
                # Voters report their directories after they found the leader.
                assert error.error is ErrorCode.INVALID_UPDATE_VERSION
            return leader.quorum.kraft_version == 1

        while not await is_upgraded():
            await asyncio.sleep(0.05)
        await world.committed(leader.quorum.end_offset)
        for member in world.members.values():
            assert member.quorum.kraft_version == 1
            assert {voter.key for voter in member.quorum.voters} == {
                each.key for each in world.members.values()
            }
        removed = next(member for member in world.members.values() if member is not leader)
        assert await ask(world, leader, remove_request(removed)) == 0
        assert removed.id not in leader.quorum.voters.ids


@in_loop
async def test_a_controller_joins_by_itself(tmp_path: Path) -> None:
    world = QuorumWorld(tmp_path, 2, is_dynamic=True, controller_quorum_auto_join_enable="true")
    async with world:
        leader = await world.leader()
        await until(lambda: world.members[2].key in leader.quorum.voters)
        await world.committed(leader.append(b"x"))


@in_loop
async def test_a_voter_that_moved_reports_its_address(tmp_path: Path) -> None:
    async with QuorumWorld(tmp_path, 3, is_dynamic=True) as world:
        first = await world.leader()
        for node_id in (2, 3):
            assert await ask(world, first, add_request(world.members[node_id])) == 0
        moved = world.members[3]
        await world.kill(moved)
        world.ports[3] = free_port()
        again = await world.start(3)
        await until(lambda: again.voter in list(first.quorum.voters))
