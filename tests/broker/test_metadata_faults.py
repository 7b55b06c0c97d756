"""Members of a quorum that cannot read or apply their metadata: another one decides, and they continue."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from runnel.batch.errors import CorruptBatch
from runnel.broker.runtime import metadata_log
from runnel.broker.runtime.metadata_log import MetadataLog
from runnel.broker.runtime.promise import Promise, forward
from runnel.model.errors import StorageFailed
from runnel.schemas.metadata import ConfigRecord
from tests.broker.quorum_world import Member, QuorumWorld, in_loop, refused_reads, until


def metadata_of(member: Member) -> MetadataLog:
    return member.broker.metadata


async def change(member: Member, value: str) -> None:
    await metadata_of(member).submit([ConfigRecord(4, "", "message.max.bytes", value)])


def value_of(member: Member) -> str | None:
    return metadata_of(member).image.broker_configs(None).get("message.max.bytes")


async def two_of_three(world: QuorumWorld) -> tuple[Member, Member]:
    """The active controller, and the only other live voter, which has applied all."""
    leader = await world.leader()
    await until(lambda: metadata_of(leader).is_active)
    other, down = (member for member in world.members.values() if member is not leader)
    await world.kill(down)
    await change(leader, "1")
    await until(lambda: value_of(other) == "1")
    return leader, other


async def elect(other: Member, instead_of: Member) -> None:
    """Let the leader resign until the other one is elected."""
    leader, before = instead_of, instead_of.quorum.epoch

    def is_elected() -> bool:
        if other.events.elected_epochs[-1:] > [before]:
            return True
        if leader.quorum.epoch in leader.events.elected_epochs:
            leader.quorum.resign()
        return False

    await until(is_elected)


async def is_active_again(leader: Member, other: Member) -> None:
    """The other one did not keep the leadership."""
    await until(
        lambda: metadata_of(leader).is_active and leader.quorum.epoch > other.events.elected_epochs[-1]
    )


@in_loop
async def test_a_leader_that_cannot_read_its_log_lets_another_one_decide(tmp_path: Path) -> None:
    world = QuorumWorld(tmp_path, 3)
    world.prepare = lambda member: None
    async with world:
        leader, other = await two_of_three(world)
        other.quorum.read_batches = refused_reads(OSError("EIO"))  # type: ignore[method-assign, assignment]
        await change(leader, "2")
        await elect(other, instead_of=leader)
        await is_active_again(leader, other)
        await change(leader, "3")
        assert value_of(other) == "1"
        del other.quorum.read_batches
        await until(lambda: value_of(other) == "3")


@pytest.mark.parametrize("cause", [CorruptBatch("damaged"), OSError("EIO")])
@in_loop
async def test_a_node_that_can_never_apply_its_log_leaves_it_to_others_to_decide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: Exception
) -> None:
    monkeypatch.setattr(metadata_log, "FAILURES_MAX", 2)
    world = QuorumWorld(tmp_path, 3)
    world.prepare = lambda member: None
    async with world:
        leader, other = await two_of_three(world)
        other.quorum.read_batches = refused_reads(cause)  # type: ignore[method-assign, assignment]
        await change(leader, "2")
        await until(lambda: metadata_of(other).is_unreadable)
        await elect(other, instead_of=leader)
        await is_active_again(leader, other)
        # Its log counts all the same.
        await change(leader, "3")


@in_loop
async def test_a_new_leader_that_cannot_write_lets_another_one_decide(tmp_path: Path) -> None:
    world = QuorumWorld(tmp_path, 3)
    world.prepare = lambda member: None
    async with world:
        leader, other = await two_of_three(world)

        def elected(predecessor_id: int) -> None:
            raise StorageFailed("no space left on device")

        metadata_of(other).on_elected = elected
        await elect(other, instead_of=leader)
        await is_active_again(leader, other)
        assert not metadata_of(other).is_active
        await change(leader, "2")
        await until(lambda: value_of(other) == "2")


@in_loop
async def test_a_snapshot_replaces_the_log_while_it_is_being_read(tmp_path: Path) -> None:
    world = QuorumWorld(tmp_path, 3)
    world.prepare = lambda member: None
    async with world:
        leader = await world.leader()
        await until(lambda: metadata_of(leader).is_active)
        await change(leader, "1")
        behind = next(member for member in world.members.values() if member is not leader)
        await until(lambda: value_of(behind) == "1")
        await world.kill(behind)
        for number in range(2, 10):
            await change(leader, str(number))
            if number in (5, 8):
                metadata_of(leader)._snapshots.require()
                metadata_of(leader)._write_snapshot_if_due()
                await metadata_of(leader)._snapshots.close()
        await until(lambda: leader.quorum.log.log_start_offset > behind.quorum.log.written_offset)
        held: list[Callable[[], None]] = []

        def read_slowly(member: Member) -> None:
            quorum = member.quorum
            read_batches = quorum.read_batches

            def read(offset: int, max_bytes: int) -> Promise[Sequence[memoryview]]:
                if member.events.installed:
                    return read_batches(offset, max_bytes)
                prepared = quorum.log.read_batches(offset, max_bytes, quorum.high_watermark)
                promise: Promise[Sequence[memoryview]] = Promise()
                held.append(lambda: forward(quorum.replicated.load(prepared), promise))
                return promise

            quorum.read_batches = read  # type: ignore[method-assign]

        world.prepare = read_slowly
        behind = await world.start(behind.id)
        await until(lambda: bool(held and behind.events.installed))
        held.pop()()
        await until(lambda: value_of(behind) == "9")
        await change(leader, "10")
        await until(lambda: value_of(behind) == "10")
