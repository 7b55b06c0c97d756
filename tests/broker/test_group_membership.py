"""Classic groups over the wire: every version of the membership APIs, and restarts."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis.strategies import text

from runnel.broker.runtime.shards import java_hash
from runnel.messages.describe_groups import DescribeGroupsRequest
from runnel.messages.find_coordinator import FindCoordinatorRequest
from runnel.messages.heartbeat import HeartbeatRequest
from runnel.messages.leave_group import LeaveGroupRequest, MemberIdentity
from runnel.messages.list_groups import ListGroupsRequest
from runnel.model.errors import ErrorCode
from tests.broker.group_calls import NONE, REQUIRED, join, join_request, play, sync_request
from tests.broker.world import BrokerWorld, Client


@pytest.mark.parametrize("version", range(10))
def test_two_members_in_every_version(tmp_path: Path, version: int) -> None:
    async def scenario(world: BrokerWorld, first: Client) -> None:
        sync_version, beat_version = min(version, 5), min(version, 4)
        leader = await join(first, version)
        assert (leader.error_code, leader.generation_id, leader.leader) == (NONE, 1, leader.member_id)
        assert [bytes(member.metadata) for member in leader.members] == [b"wishes"]
        given = await first.ask(sync_request(leader, {leader.member_id: b"all"}), sync_version)
        assert (given.error_code, bytes(given.assignment)) == (NONE, b"all")

        second = await world.connect()
        request = join_request()
        if version >= 4:
            reply = await second.ask(request, version)
            assert reply.error_code == REQUIRED
            request = join_request(reply.member_id)
        second.send(request, version)
        beat = HeartbeatRequest("g", 1, leader.member_id)
        while (reply := await first.ask(beat, beat_version)).error_code == NONE:
            await asyncio.sleep(0.001)
        assert reply.error_code == ErrorCode.REBALANCE_IN_PROGRESS.code

        leader = await join(first, version, leader.member_id)
        follower = await second.receive()
        assert (leader.generation_id, follower.generation_id, follower.members) == (2, 2, [])
        second.send(sync_request(follower, {}), sync_version)
        work = {leader.member_id: b"one", follower.member_id: b"two"}
        given = await first.ask(sync_request(leader, work), sync_version)
        assert (bytes(given.assignment), bytes((await second.receive()).assignment)) == (b"one", b"two")
        assert (
            await second.ask(HeartbeatRequest("g", 2, follower.member_id), beat_version)
        ).error_code == NONE

    play(tmp_path, scenario)


@pytest.mark.parametrize("version", range(6))
def test_members_leave_in_every_version(tmp_path: Path, version: int) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        member = await join(client)
        for expected in (NONE, ErrorCode.UNKNOWN_MEMBER_ID.code):
            request = LeaveGroupRequest("g", member.member_id, [MemberIdentity(member.member_id)])
            reply = await client.ask(request, version)
            if version < 3:
                assert reply.error_code == expected
            else:
                assert reply.error_code == NONE
                assert [answer.error_code for answer in reply.members] == [expected]
        groups = (await client.ask(ListGroupsRequest(["empty"], ["Classic"]), 5)).groups
        assert [(group.group_id, group.group_state, group.group_type) for group in groups] == [
            ("g", "Empty", "classic")
        ]

    play(tmp_path, scenario)


def test_members_survive_a_restart(tmp_path: Path) -> None:
    async def before(world: BrokerWorld, client: Client) -> None:
        member = await join(client, instance_id="one")
        await client.ask(sync_request(member, {member.member_id: b"all"}, "one"), 5)

    async def after(world: BrokerWorld, client: Client) -> None:
        (group,) = (await client.ask(DescribeGroupsRequest(["g"], True), 6)).groups
        (member,) = group.members
        assert (group.group_state, group.protocol_data, bytes(member.member_assignment)) == (
            "Stable",
            "range",
            b"all",
        )
        assert (member.group_instance_id, member.client_host) == ("one", "/127.0.0.1")
        assert group.authorized_operations > 0
        beat = HeartbeatRequest("g", 1, member.member_id, "one")
        assert (await client.ask(beat, 4)).error_code == NONE
        # A restarted static member rejoins without a rebalance.
        again = await join(client, instance_id="one")
        assert (again.generation_id, again.skip_assignment) == (1, True)
        assert (await client.ask(beat, 4)).error_code == ErrorCode.FENCED_INSTANCE_ID.code

    play(tmp_path, before)
    play(tmp_path, after)


def test_session_timeout_removes_a_member(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        request = join_request()
        request.session_timeout_ms = 50
        assert (await client.ask(request, 3)).error_code == NONE
        while (await client.ask(DescribeGroupsRequest(["g"]), 5)).groups[0].group_state != "Empty":
            await asyncio.sleep(0.01)

    play(tmp_path, scenario)


def test_shutdown_completes_pending_requests(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        member = await join(client)
        other = await world.connect()
        other.send(join_request(), 3)
        while (await client.ask(HeartbeatRequest("g", 1, member.member_id), 4)).error_code == NONE:
            await asyncio.sleep(0.001)
        world.broker.groups.stop()
        assert (await other.receive()).error_code == ErrorCode.NOT_COORDINATOR.code
        reply = await client.ask(HeartbeatRequest("g", 1, member.member_id), 4)
        assert reply.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE.code

    play(tmp_path, scenario)


def test_unknown_group_is_dead(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        for version in range(7):
            (group,) = (await client.ask(DescribeGroupsRequest(["unknown"]), version)).groups
            expected = ErrorCode.GROUP_ID_NOT_FOUND.code if version >= 6 else NONE
            assert (group.group_state, group.error_code) == ("Dead", expected)

    play(tmp_path, scenario)


def test_coordinators_are_found_in_every_version(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        where = (NONE, 1, "127.0.0.1", world.broker.port)
        for version in range(4):
            reply = await client.ask(FindCoordinatorRequest(key="g"), version)
            assert (reply.error_code, reply.node_id, reply.host, reply.port) == where
        for version in range(4, 7):
            reply = await client.ask(FindCoordinatorRequest(coordinator_keys=["g", "h"]), version)
            found = [(each.error_code, each.node_id, each.host, each.port) for each in reply.coordinators]
            assert found == [where, where]
        reply = await client.ask(FindCoordinatorRequest(coordinator_keys=["s"], key_type=2), 6)
        assert reply.coordinators[0].error_code == ErrorCode.INVALID_REQUEST.code
        reply = await client.ask(FindCoordinatorRequest(key="transaction", key_type=1), 2)
        assert reply.error_code == NONE

    play(tmp_path, scenario)


@given(text())
def test_partition_of_a_group_equals_kafka(name: str) -> None:
    units = name.encode("utf-16-le")
    characters = [int.from_bytes(units[at : at + 2], "little") for at in range(0, len(units), 2)]
    # The definition of Java's String.hashCode and of Kafka's Utils.abs.
    polynomial = sum(unit * 31**power for power, unit in enumerate(reversed(characters)))
    signed = (polynomial + 2**31) % 2**32 - 2**31
    assert java_hash(name) == (0 if signed == -(2**31) else abs(signed))


def test_known_hashes() -> None:
    names = ["", "hello", "Aa", "BB", "polygenelubricants"]
    assert [java_hash(name) for name in names] == [0, 99162322, 2112, 2112, 0]
