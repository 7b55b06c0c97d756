"""The owner of a log: who is acknowledged when, what another epoch changes, and reads that never block."""

import asyncio
import errno
import gc
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from runnel.broker.runtime.replicated_log import ReplicatedLog
from runnel.disk.os_files import OsFile
from runnel.messages.find_coordinator import FindCoordinatorRequest
from runnel.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from runnel.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from runnel.model.errors import ApiError, ErrorCode, StorageFailed
from runnel.replica.follower import FollowerReplica
from runnel.replica.leader import LeaderReplica
from tests.broker.requests import NOW_MS, batch, fetch_from, only, produce_to, values
from tests.broker.world import BrokerWorld

Scenario = Callable[[BrokerWorld], Awaitable[None]]


@dataclass
class Waiter:
    """An acknowledgement that records its outcomes, and may do something with the first."""

    end_offset: int
    then: Callable[[], None] | None = None
    outcomes: list[str] = field(default_factory=list)

    def committed(self) -> None:
        self.outcomes.append("committed")
        if self.then is not None:
            self.then()

    def failed(self, error: ApiError) -> None:
        self.outcomes.append(error.error.name)


def play(folder: Path, scenario: Scenario, **configs: str) -> None:
    async def run() -> None:
        async with BrokerWorld(folder) as world:
            if "t" not in world.broker.metadata.image.topics:
                await world.create("t", 1, **configs)
            await scenario(world)

    asyncio.run(run())


def stage(partition: Any, waiter: Waiter) -> None:
    partition.stage(memoryview(bytearray(batch(b"x"))), NOW_MS)
    partition.when_committed(waiter)


def no_space(*_: object) -> int:
    raise OSError(errno.ENOSPC, "no space")


def test_a_waiter_whose_own_write_fails_disturbs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: BrokerWorld) -> None:
        partition = world.broker.partition("t", 0)
        third = Waiter(4)

        def write_in_vain() -> None:
            with monkeypatch.context() as full:
                full.setattr(OsFile, "pwritev", no_space)
                stage(partition, third)
                partition.write()

        first, second = Waiter(1, then=write_in_vain), Waiter(2)
        last = Waiter(3)
        for waiter in (first, second, last):
            stage(partition, waiter)
        world.broker.turn.finish()
        stage(partition, next_write := Waiter(4))
        world.broker.turn.finish()
        assert next_write.outcomes == ["committed"]
        assert [first.outcomes, second.outcomes, last.outcomes] == [["committed"]] * 3, "once, and only once"
        assert third.outcomes == ["KAFKA_STORAGE_ERROR"]

    play(tmp_path, scenario)


def test_waiters_are_called_after_the_high_watermark_moved_and_outside_of_it(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld) -> None:
        partition = world.broker.partition("t", 0)
        waiter = Waiter(1)
        stage(partition, waiter)
        partition.write()
        assert partition.high_watermark == partition.log.high_watermark == 1
        assert waiter.outcomes == []
        world.broker.turn.finish()
        assert waiter.outcomes == ["committed"]

    play(tmp_path, scenario)


def test_a_waiter_that_raises_does_not_keep_others_waiting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: BrokerWorld) -> None:
        partition = world.broker.partition("t", 0)

        def bug() -> None:
            raise ZeroDivisionError("a bug in a waiter")

        waiters = [Waiter(1, then=bug), Waiter(2)]
        for waiter in waiters:
            stage(partition, waiter)
        world.broker.turn.finish()
        assert [waiter.outcomes for waiter in waiters] == [["committed"], ["committed"]]

    play(tmp_path, scenario)
    assert "a bug in a waiter" in caplog.text


def led_by_three(partition: ReplicatedLog) -> LeaderReplica:
    nodes = frozenset({1, 2, 3})
    return LeaderReplica(1, partition.epoch + 1, nodes, nodes)


def test_a_record_is_committed_when_all_in_sync_replicas_hold_it(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld) -> None:
        partition = world.broker.partition("t", 0)
        partition.become_leader(led_by_three(partition))
        waiter = Waiter(1)
        stage(partition, waiter)
        world.broker.turn.finish()
        partition.follower_fetched(2, 1)
        world.broker.turn.finish()
        assert (partition.high_watermark, waiter.outcomes) == (0, [])
        partition.follower_fetched(3, 1)
        world.broker.turn.finish()
        assert (partition.high_watermark, waiter.outcomes) == (1, ["committed"])
        later = Waiter(2)
        stage(partition, later)
        world.broker.turn.finish()
        nodes = frozenset({1, 2, 3})
        partition.changed(nodes, frozenset({1, 3}), 1)
        partition.follower_fetched(3, 2)
        world.broker.turn.finish()
        assert later.outcomes == ["committed"]
        partition.changed(nodes, nodes, 1)
        assert partition.leader.isr == {1, 3}, "that is not newer"

    play(tmp_path, scenario)


@dataclass
class Quorum:
    """A core of another kind: what is committed is decided elsewhere."""

    node: int
    epoch: int
    high_watermark: int = 0

    def stored(self, end_offset: int) -> bool:
        return False

    def truncated(self, end_offset: int) -> None:
        self.high_watermark = min(self.high_watermark, end_offset)


def test_an_epoch_does_not_begin_after_records_that_could_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: BrokerWorld) -> None:
        partition = world.broker.partition("t", 0)
        stage(partition, lost := Waiter(1))
        partition.become_leader(led_by_three(partition))
        with monkeypatch.context() as full:
            full.setattr(OsFile, "pwritev", no_space)
            world.broker.turn.finish()
        assert lost.outcomes == ["KAFKA_STORAGE_ERROR"]
        assert partition.log.end_offset == partition.leader.epoch_start == 0
        assert partition.leader.has_committed_in_epoch

    play(tmp_path, scenario)


def test_any_core_may_decide_what_is_committed(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld) -> None:
        partition = world.broker.partition("t", 0)
        quorum = Quorum(1, partition.epoch + 1)
        partition.become_leader(quorum)
        waiter = Waiter(1)
        stage(partition, waiter)
        world.broker.turn.finish()
        assert (partition.log.high_watermark, waiter.outcomes) == (0, [])
        quorum.high_watermark = 1
        partition.advance()
        world.broker.turn.finish()
        assert (partition.log.high_watermark, waiter.outcomes) == (1, ["committed"])
        # The same core in a new epoch: a follower that fails its waiters and truncates the rest.
        stage(partition, unsettled := Waiter(2))
        world.broker.turn.finish()
        quorum.epoch += 1
        partition.become_follower(quorum)
        partition.truncate_to(1)
        world.broker.turn.finish()
        assert (partition.log.end_offset, unsettled.outcomes) == (1, ["NOT_LEADER_OR_FOLLOWER"])

    play(tmp_path, scenario)


def test_resigning_fails_waiters_and_takes_no_more_writes(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld) -> None:
        partition = world.broker.partition("t", 0)
        first_epoch = partition.epoch
        partition.become_leader(led_by_three(partition))
        waiter = Waiter(1)
        stage(partition, waiter)
        world.broker.turn.finish()
        partition.become_follower(FollowerReplica(1, first_epoch + 2, leader=2))
        world.broker.turn.finish()
        assert waiter.outcomes == ["NOT_LEADER_OR_FOLLOWER"]
        with pytest.raises(ApiError) as refused:
            partition.stage(memoryview(bytearray(batch(b"x"))), NOW_MS)
        assert refused.value.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        late = Waiter(1)
        partition.when_committed(late)
        world.broker.turn.finish()
        assert late.outcomes == ["NOT_LEADER_OR_FOLLOWER"]
        # What was never committed goes; the next leadership begins with what was.
        partition.truncate_to(0)
        with pytest.raises(ApiError) as stale:
            partition.become_leader(
                led_by_three(partition).__class__(1, first_epoch, frozenset(), frozenset())
            )
        assert stale.value.error is ErrorCode.FENCED_LEADER_EPOCH
        alone = frozenset({1})
        partition.become_leader(LeaderReplica(1, first_epoch + 3, alone, alone))
        again = Waiter(1)
        stage(partition, again)
        world.broker.turn.finish()
        assert (again.outcomes, partition.log.epoch_of(0)) == (["committed"], first_epoch + 3)
        partition.become_follower(FollowerReplica(1, first_epoch + 4, leader=2))
        with pytest.raises(ApiError):
            partition.truncate_to(0)

    play(tmp_path, scenario)


def test_a_sync_of_an_older_epoch_commits_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: BrokerWorld) -> None:
        partition = world.broker.partition("t", 0)
        epoch, loop = partition.epoch, asyncio.get_running_loop()
        syncs: list[asyncio.Future[int]] = []

        def sync(_: object) -> "asyncio.Future[int]":
            syncs.append(loop.create_future())
            return syncs[-1]

        monkeypatch.setattr(world.disk, "sync", sync)
        stage(partition, Waiter(1))
        world.broker.turn.finish()
        partition.become_follower(FollowerReplica(1, epoch + 1, leader=2))
        partition.truncate_to(0)
        alone = frozenset({1})
        partition.become_leader(LeaderReplica(1, epoch + 2, alone, alone))
        waiter = Waiter(1)
        stage(partition, waiter)
        world.broker.turn.finish()
        for synced, outcomes in zip(syncs, ([], ["committed"]), strict=True):
            synced.set_result(1)
            await asyncio.sleep(0)
            world.broker.turn.finish()
            assert waiter.outcomes == outcomes
        monkeypatch.undo()

    play(tmp_path, scenario, flush_policy="commit")


def test_a_sync_that_fails_in_an_older_epoch_is_not_reported_as_a_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower that truncates its log interrupts the sync of what it wrote as the leader."""

    async def scenario(world: BrokerWorld) -> None:
        partition = world.broker.partition("t", 0)
        loop = asyncio.get_running_loop()
        syncs: list[asyncio.Future[int]] = []

        def sync(_: object) -> "asyncio.Future[int]":
            syncs.append(loop.create_future())
            return syncs[-1]

        reports: list[Any] = []
        loop.set_exception_handler(lambda _, context: reports.append(context))
        monkeypatch.setattr(world.disk, "sync", sync)
        stage(partition, waiter := Waiter(1))
        world.broker.turn.finish()
        partition.become_follower(FollowerReplica(1, partition.epoch + 1, leader=2))
        syncs.pop().set_exception(StorageFailed("the log is being truncated"))
        await asyncio.sleep(0)
        gc.collect()
        assert reports == []
        world.broker.turn.finish()
        assert waiter.outcomes == ["NOT_LEADER_OR_FOLLOWER"]
        monkeypatch.undo()

    play(tmp_path, scenario, flush_policy="commit")


class ColdDisk:
    """A page cache that holds nothing until a thread has read it; notes who reads files on the event loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loads = 0
        self.blocking: list[str] = []
        self._loop_thread = threading.get_ident()
        self._was_loaded = False
        pread = OsFile.pread

        def reading(file: OsFile, length: int, position: int) -> bytes:
            if threading.get_ident() != self._loop_thread:
                self.loads += 1
                self._was_loaded = True
            elif not self._was_loaded:
                self.blocking.append(f"{length} bytes at {position}")
            return pread(file, length, position)

        monkeypatch.setattr(OsFile, "pread", reading)
        monkeypatch.setattr(OsFile, "is_resident", lambda *_: self._was_loaded)

    def evict(self) -> None:
        self._was_loaded = False


def test_no_request_reads_a_cold_file_on_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fill(world: BrokerWorld) -> None:
        client = await world.connect()
        for number in range(4):
            await client.ask(produce_to("t", (0, batch(b"%d" % number))), 9)

    async def read(world: BrokerWorld) -> None:
        client = await world.connect()
        disk = ColdDisk(monkeypatch)
        found = only(await client.ask(fetch_from("t", (0, 1)), 12))
        assert values(found.records)[-1] == b"3"
        disk.evict()
        await client.ask(fetch_from("t", (0, 2), isolation=1), 12)
        disk.evict()
        asked = ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, 1)])
        assert (await client.ask(ListOffsetsRequest(topics=[asked]), 5)).topics[0].partitions[0].offset == 0
        assert disk.blocking == [] and disk.loads >= 3

    play(tmp_path, fill)
    play(tmp_path, read)


def test_a_cold_fetch_that_finds_too_little_waits_for_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fill(world: BrokerWorld) -> None:
        await (await world.connect()).ask(produce_to("t", (0, batch(b"old"))), 9)

    async def read(world: BrokerWorld) -> None:
        reader, writer = await world.connect(), await world.connect()
        disk = ColdDisk(monkeypatch)
        reader.send(fetch_from("t", (0, 0), wait_ms=60_000, min_bytes=100), 12)
        while not world.broker.waiting.polls:
            await asyncio.sleep(0.001)
        await writer.ask(produce_to("t", (0, batch(b"n" * 100))), 9)
        found = only(await reader.receive())
        assert values(found.records) == [b"old", b"n" * 100]
        assert disk.loads and disk.blocking == []

    play(tmp_path, fill)
    play(tmp_path, read)


def test_coordinators_are_loaded_by_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def commit(offset: int) -> OffsetCommitRequest:
        part = OffsetCommitRequestPartition(0, offset)
        return OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("t", partitions=[part])])

    async def fill(world: BrokerWorld) -> None:
        client = await world.connect()
        while (await client.ask(FindCoordinatorRequest(key="g"), 1)).error_code:
            await asyncio.sleep(0)
        for offset in range(20):
            await client.ask(commit(offset), 8)

    async def run() -> None:
        async with BrokerWorld(tmp_path) as world:
            await world.create("t")
            await fill(world)
        disk = ColdDisk(monkeypatch)
        async with BrokerWorld(tmp_path) as world:
            disk.blocking.clear()
            disk.evict()
            client = await world.connect()
            while (await client.ask(commit(20), 8)).topics[0].partitions[0].error_code:
                await asyncio.sleep(0)
            assert disk.loads and disk.blocking == []

    asyncio.run(run())


def test_an_isolated_leader_fails_producers_and_keeps_what_coordinators_wait_for(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld) -> None:
        partition = world.broker.partition("t", 0)
        nodes = frozenset({1, 2})
        partition.become_leader(LeaderReplica(partition.replica.node, 5, nodes, nodes))
        producer, coordinator = Waiter(1), Waiter(1)
        partition.stage(memoryview(bytearray(batch(b"x"))), NOW_MS)
        partition.when_replicated(producer, 30_000)
        partition.when_committed(coordinator)
        world.broker.turn.finish()
        partition.isolate(True)
        world.broker.turn.finish()
        assert (producer.outcomes, coordinator.outcomes) == (["NOT_LEADER_OR_FOLLOWER"], [])
        with pytest.raises(ApiError, match="another broker may lead t-0 by now"):
            partition.stage(memoryview(bytearray(batch(b"y"))), NOW_MS)
        (refused,) = partition.stage_all([memoryview(bytearray(batch(b"y")))], NOW_MS)
        assert isinstance(refused, ApiError)
        partition.isolate(False)
        partition.stage(memoryview(bytearray(batch(b"z"))), NOW_MS)
        partition.follower_fetched(2, 1)
        world.broker.turn.finish()
        assert coordinator.outcomes == ["committed"]

    play(tmp_path, scenario)
