"""The driver of the metadata quorum, over real files and sockets."""

import json
import logging
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from runnel.broker.runtime import bug_reports, quorum_channels, quorum_reports
from runnel.broker.runtime.quorum_wire import encode_request
from runnel.broker.runtime.running import start_quorum
from runnel.controller.image import BadMetadata
from runnel.model.errors import NotController
from runnel.model.ids import SnapshotId
from runnel.raft.control import snapshot_footer, snapshot_header
from tests.broker.quorum_world import NOW_MS, Events, Member, QuorumWorld, in_loop, until
from tools.broker_process import free_port


def sole_member(folder: Path) -> Member:
    return Member(folder, 1, free_port(), {"node.id": "1"})


def is_elected(events: Events, epoch: int) -> bool:
    return events.elected_epochs == [epoch]


def is_committed(events: Events, offset: int) -> bool:
    return events.committed >= offset


@in_loop
async def test_a_sole_voter_elects_itself_and_commits(tmp_path: Path) -> None:
    member = sole_member(tmp_path)
    await member.start()
    await until(lambda: member.events.elected_epochs == [1])
    assert member.events.leaders[-1] == (1, 1)
    # The first record of an epoch is its LeaderChange.
    assert member.append(b"a", b"b") == 3
    await until(lambda: member.events.committed == 3)
    assert await member.values() == [b"a", b"b"]
    await member.stop()


@in_loop
async def test_a_restarted_voter_leads_in_a_new_epoch_and_keeps_its_log(tmp_path: Path) -> None:
    for run in range(1, 4):
        member = sole_member(tmp_path)
        await member.start()
        events = member.events
        await until(partial(is_elected, events, run))
        end_offset = member.append(f"{run}".encode())
        await until(partial(is_committed, events, end_offset))
        assert await member.values() == [f"{each}".encode() for each in range(1, run + 1)]
        await member.stop()
    state = json.loads((tmp_path / "__cluster_metadata-0" / "quorum-state").read_text())
    del state["checksum"]
    assert state == {
        "clusterId": "",
        "leaderId": 1,
        "leaderEpoch": 3,
        "votedId": -1,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": 1}],
        "data_version": 0,
    }


@in_loop
async def test_a_damaged_quorum_state_prevents_the_start(tmp_path: Path) -> None:
    member = sole_member(tmp_path)
    await member.start()
    await until(lambda: member.events.elected_epochs == [1])
    await member.stop()
    (tmp_path / "__cluster_metadata-0" / "quorum-state").write_text('{"leaderId":')
    with pytest.raises(BadMetadata, match="quorum-state is damaged"):
        await sole_member(tmp_path).start()


def metadata_folder(tmp_path: Path, member: Member) -> Path:
    return tmp_path / str(member.id) / "__cluster_metadata-0"


def lose_snapshots(folder: Path) -> None:
    for path in folder.glob("*.checkpoint"):
        path.unlink()


def damage_state(folder: Path) -> None:
    (folder / "quorum-state").write_text('{"leaderId":')


def damage_log(folder: Path) -> None:
    """A flipped bit of the first batch, whose magic byte is wrong, where the log is recovered."""
    (folder.parent / "clean-shutdown-manifest").unlink(missing_ok=True)
    path = min(folder.glob("*.log"))
    data = path.read_bytes()
    path.write_bytes(data[:16] + bytes([data[16] ^ 8]) + data[17:])


HARMS = {
    "the metadata log is damaged": damage_log,
    "quorum-state is damaged": damage_state,
    "no snapshot has what was before": lose_snapshots,
}


@pytest.mark.parametrize("message", HARMS)
@in_loop
async def test_damaged_metadata_stops_a_voter_but_an_observer_fetches_it_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, message: str
) -> None:
    async with QuorumWorld(tmp_path, 3, observers=1) as world:
        leader = await world.leader()
        observer = world.members[4]
        voter = next(world.members[number] for number in (1, 2, 3) if world.members[number] is not leader)
        for value in (b"1", b"2"):
            await world.committed(leader.append(value))
            for member in world.members.values():
                member.write_snapshot(member.quorum.high_watermark)
        await until(lambda: all(each.quorum.log.log_start_offset > 0 for each in world.members.values()))
        await world.committed(leader.append(b"3"))
        for member in (observer, voter):
            await world.kill(member)
            HARMS[message](metadata_folder(tmp_path, member))
        with pytest.raises(BadMetadata, match=message) as stopped:
            await world.start(voter.id)
        assert "Replace the disk of this controller" in str(stopped.value)
        assert "from a copy" not in caplog.text + str(stopped.value), "it would forget what it acknowledged"
        observer = await world.start(4)
        assert "cannot be used, and is fetched again" in caplog.text and message in caplog.text
        await world.committed(leader.quorum.high_watermark)
        assert (await observer.values())[-1:] == [b"3"]


@in_loop
async def test_the_only_controller_has_no_other_to_copy_from(tmp_path: Path) -> None:
    member = sole_member(tmp_path)
    await member.start()
    await until(lambda: member.events.elected_epochs == [1])
    await member.stop()
    damage_log(tmp_path / "__cluster_metadata-0")
    with pytest.raises(BadMetadata, match=r"from a copy; or, to continue without .* __cluster_metadata-0"):
        await sole_member(tmp_path).start()


@in_loop
async def test_partitions_without_metadata_stop_only_a_node_that_could_begin_a_new_log(
    tmp_path: Path,
) -> None:
    """A broker whose damaged copy was removed may have ended before it created another one."""
    world = QuorumWorld(tmp_path, 3, observers=1)
    for node_id in (1, 4):
        (tmp_path / str(node_id) / "t-0").mkdir(parents=True)
        member = Member(tmp_path / str(node_id), node_id, world.ports[node_id], world.settings(node_id))
        async with AsyncExitStack() as stack:
            if node_id == 4:
                await start_quorum(member.broker, stack)
                assert member.has_log
            else:
                with pytest.raises(BadMetadata, match="holds 1 partitions but no metadata"):
                    await start_quorum(member.broker, stack)


def test_a_follower_that_disconnects_while_its_fetch_waits_is_no_bug(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @in_loop
    async def run() -> None:
        async with QuorumWorld(tmp_path, 3) as world:
            leader = await world.leader()
            follower = next(member for member in world.members.values() if member is not leader)
            await until(lambda: len(leader.broker.waiting.polls) == 2)
            await world.kill(follower)
            await until(lambda: len(leader.broker.waiting.polls) < 2)

    run()
    assert not [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


@in_loop
async def test_records_are_replicated_to_voters_and_observers(tmp_path: Path) -> None:
    async with QuorumWorld(tmp_path, 3, observers=1) as world:
        leader = await world.leader()
        for number in range(50):
            leader.append(b"%d" % number)
        await world.committed(leader.quorum.end_offset)
        for member in world.members.values():
            assert await member.values() == [b"%d" % number for number in range(50)]
            assert member.quorum.leader_endpoint() == (leader.id, "127.0.0.1", leader.port)
            if member is not leader:
                with pytest.raises(NotController):
                    member.append(b"not here")


@in_loop
async def test_a_killed_leader_is_replaced_and_returns_as_a_follower(tmp_path: Path) -> None:
    async with QuorumWorld(tmp_path, 3) as world:
        first = await world.leader()
        end_offset = first.append(b"before")
        await world.committed(end_offset)
        await world.kill(first)
        second = await world.leader()
        assert second.id != first.id and second.quorum.epoch > 1
        end_offset = second.append(b"after")
        await world.start(first.id)
        await world.committed(end_offset)
        assert (await world.leader()).id == second.id
        assert await world.members[first.id].values() == [b"before", b"after"]


@in_loop
async def test_what_was_not_committed_is_truncated(tmp_path: Path) -> None:
    async with QuorumWorld(tmp_path, 3) as world:
        first = await world.leader()
        await world.committed(first.append(b"before"))
        others = [member for member in world.members.values() if member is not first]
        for member in others:
            await world.kill(member)
        first.append(b"lost")
        await until(lambda: first.quorum.log.durable_offset == first.quorum.end_offset)
        await world.kill(first)
        for member in others:
            await world.start(member.id)
        second = await world.leader()
        second.append(b"after")
        await world.start(first.id)
        await world.committed(second.quorum.end_offset)
        assert await world.members[first.id].values() == [b"before", b"after"]


@in_loop
async def test_a_controlled_stop_hands_over_the_leadership(tmp_path: Path) -> None:
    async with QuorumWorld(tmp_path, 3) as world:
        leader = await world.leader()
        await world.committed(leader.append(b"before"))
        await world.stop(leader)
        # The successor was elected before the leader stopped.
        assert any(member.quorum.is_leader for member in world.members.values())
        assert leader.events.leaders[-1][0] in world.members


@in_loop
async def test_a_leader_that_serves_no_more_finds_its_successor(tmp_path: Path) -> None:
    async with QuorumWorld(tmp_path, 3) as world:
        leader = await world.leader()
        # A node that stops closes its listeners first, so that the successor cannot announce itself to it.
        await leader.listener.close(grace_seconds=0)
        await leader.quorum.close()
        assert leader.events.leaders[-1][0] not in (leader.id, -1)


@in_loop
async def test_a_leader_without_a_majority_resigns(tmp_path: Path) -> None:
    async with QuorumWorld(tmp_path, 3, controller_quorum_fetch_timeout_ms="300") as world:
        leader = await world.leader()
        for member in list(world.members.values()):
            if member is not leader:
                await world.kill(member)
        await until(lambda: not leader.quorum.is_leader)
        assert leader.events.leaders[-1][0] == -1
        with pytest.raises(NotController):
            leader.append(b"not stored by others")


@in_loop
async def test_a_member_far_behind_receives_a_snapshot(tmp_path: Path) -> None:
    async with QuorumWorld(tmp_path, 3, controller_quorum_fetch_snapshot_max_bytes="100") as world:
        leader = await world.leader()
        absent = next(member for member in world.members.values() if member is not leader)
        await world.kill(absent)
        for _ in range(2):
            leader.append(b"old")
            await world.committed(leader.quorum.end_offset)
            snapshot = leader.write_snapshot(leader.quorum.high_watermark)
        # The log is kept since the snapshot before.
        await until(lambda: leader.quorum.log.log_start_offset == snapshot.end_offset - 1)
        leader.append(b"new")
        returned = await world.start(absent.id)
        await world.committed(leader.quorum.end_offset)
        assert returned.events.installed == [snapshot]
        assert await returned.values() == [b"new"]
        # The snapshot is stored, so a restart needs no other.
        await world.kill(returned)
        again = await world.start(absent.id)
        await world.committed(leader.quorum.end_offset)
        assert again.events.installed == []
        assert again.quorum.log.log_start_offset == snapshot.end_offset


@pytest.mark.parametrize("has_committed_records", [True, False])
@in_loop
async def test_a_log_that_others_have_replaced_does_not_follow_a_received_snapshot(
    tmp_path: Path, has_committed_records: bool
) -> None:
    member = sole_member(tmp_path)
    await member.start()
    await until(lambda: member.events.elected_epochs == [1])
    member.append(b"a", b"b", b"c")
    await until(lambda: member.events.committed == 4)
    # The node stops after the snapshot was stored, and before the log was replaced by it.
    epoch = 1 if has_committed_records else 5
    header, footer = snapshot_header(NOW_MS, epoch, 0, None), snapshot_footer(NOW_MS, epoch, 1)
    member.quorum.snapshots.write(SnapshotId(2, epoch), [header, footer])
    await member.kill()
    again = sole_member(tmp_path)
    await again.start()
    if has_committed_records:
        assert await again.values() == [b"a", b"b", b"c"]
    else:
        assert again.quorum.log.log_start_offset == 2
        await until(lambda: again.events.elected_epochs == [6])
        assert await again.values() == []
    await again.stop()


@contextmanager
def damaged(path: Path, position: int) -> Iterator[None]:
    """A file with one flipped bit."""
    good = path.read_bytes()
    path.write_bytes(good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :])
    yield
    path.write_bytes(good)


@in_loop
async def test_damaged_records_of_the_leader_are_refused_and_fetched_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with QuorumWorld(tmp_path, 3) as world:
        leader = await world.leader()
        absent = next(member for member in world.members.values() if member is not leader)
        await world.kill(absent)
        before = leader.append(b"good")
        leader.append(b"to be damaged")
        await world.committed(leader.quorum.end_offset)
        path = tmp_path / str(leader.id) / "__cluster_metadata-0" / "00000000000000000000.log"
        with damaged(path, path.read_bytes().index(b"to be damaged")):
            returned = await world.start(absent.id)
            await until(lambda: "records of the metadata leader cannot be appended" in caplog.text)
            assert returned.quorum.end_offset <= before
            # Only the node that received them is affected.
            assert leader.quorum.is_leader
        await world.committed(leader.quorum.end_offset)
        assert await returned.values() == await leader.values()


@in_loop
async def test_a_damaged_snapshot_of_the_leader_is_refused_and_fetched_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with QuorumWorld(tmp_path, 3) as world:
        leader = await world.leader()
        absent = next(member for member in world.members.values() if member is not leader)
        await world.kill(absent)
        for _ in range(2):
            leader.append(b"old")
            await world.committed(leader.quorum.end_offset)
            snapshot = leader.write_snapshot(leader.quorum.high_watermark)
        await until(lambda: leader.quorum.log.log_start_offset == snapshot.end_offset - 1)
        (path,) = (tmp_path / str(leader.id) / "__cluster_metadata-0").glob(
            f"*{snapshot.end_offset}-*.checkpoint"
        )
        with damaged(path, path.stat().st_size - 3):
            returned = await world.start(absent.id)
            await until(lambda: "the snapshot of the metadata leader cannot be stored" in caplog.text)
            assert returned.events.installed == []
            assert leader.quorum.is_leader
        await world.committed(leader.quorum.end_offset)
        assert returned.events.installed == [snapshot]


@in_loop
async def test_a_quorum_that_cannot_form_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quorum_reports, "INTERVAL_MS", 50)
    world = QuorumWorld(tmp_path, 3)
    await world.start(1)
    refused = f"127.0.0.1:{world.ports[2]}: the connection was refused"
    await until(lambda: "the metadata quorum has no leader" in caplog.text and refused in caplog.text)
    await world.start(2)
    await until(lambda: "leads the metadata quorum" in caplog.text)
    await world.__aexit__()


@in_loop
async def test_requests_that_cannot_be_encoded_are_reported_and_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls = count()

    def break_first(*arguments: Any) -> Any:
        message: Any = encode_request(*arguments)
        if next(calls) < 30:
            message.cluster_id = 2**31
        return message

    monkeypatch.setattr(quorum_channels, "encode_request", break_first)
    async with QuorumWorld(tmp_path, 2) as world:
        await world.leader()
    reports = [record for record in caplog.records if "could not be sent" in record.getMessage()]
    assert reports, "nothing was reported"
    assert len(reports) <= 2 * bug_reports.TRACEBACKS_PER_MINUTE_MAX
    assert {record.name for record in caplog.records if record.exc_info} == {"runnel.broker"}
