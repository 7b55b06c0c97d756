"""ShardDriver: transactional batches, markers, and commit callbacks."""

import asyncio
import errno
from asyncio import Future
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from runnel.batch.control import EndMarker, build_end_marker
from runnel.batch.header import read_header
from runnel.broker.runtime import shard_driver
from runnel.broker.runtime.shard_driver import ShardDriver
from runnel.broker.runtime.shard_loading import ShardLoading
from runnel.coordinator.contract import (
    CoordinatorResult,
    Moment,
    NewRecord,
    ProducerIdAndEpoch,
    ReplayContext,
    Timer,
)
from runnel.coordinator.group.records import RECORD_TYPES
from runnel.disk.os_files import OsFile
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition
from runnel.schemas.group import GroupMetadataKey
from runnel.wire import Data
from tests.broker.world import BrokerWorld
from tests.stored import stored_batches


class RecordingShard:
    """A shard that records its calls."""

    record_types = RECORD_TYPES
    can_skip_corrupt_batches = False

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.next: CoordinatorResult[None] = CoordinatorResult()
        """Called on commit."""

    def replay(self, key: Data, value: Data | None, place: ReplayContext) -> None:
        assert isinstance(key, GroupMetadataKey)
        self.calls.append((key.group, *place))

    def replay_end(self, producer_id: int, producer_epoch: int, is_commit: bool) -> None:
        self.calls.append(("end", producer_id, producer_epoch, is_commit))

    def defer(self, key: bytes, value: bytes | None, offset: int) -> bool:
        return False

    def replay_deferred(self, count: int) -> bool:
        return False

    def resume(self, then: Any, error: ErrorCode | None, now: Moment) -> CoordinatorResult[None]:
        self.calls.append((then, error))
        return CoordinatorResult()

    def committed(self, token: Any, now: Moment) -> CoordinatorResult[None]:
        self.calls.append(("committed", token))
        decision, self.next = self.next, CoordinatorResult()
        return decision

    def fired(self, timer: Timer, now: Moment) -> CoordinatorResult[None]:
        return CoordinatorResult()

    def loaded(self, now: Moment) -> CoordinatorResult[None]:
        return CoordinatorResult()

    def unloaded(self) -> CoordinatorResult[None]:
        return CoordinatorResult()


def line(text: str) -> NewRecord:
    return NewRecord(GroupMetadataKey(group=text), None)


def driven(world: BrokerWorld) -> ShardDriver[RecordingShard]:
    partition = world.broker.partitions[TopicPartition("t", 0)]
    return ShardDriver(RecordingShard(), partition, world.broker.clock, world.broker.timers, 10_000, 0)


def play(folder: Path, scenario: Callable[[BrokerWorld], Awaitable[None]], **configs: str) -> None:
    async def run() -> None:
        async with BrokerWorld(folder) as world:
            if "t" not in world.broker.metadata.image.topics:
                await world.create("t", 1, **configs)
            await scenario(world)

    asyncio.run(run())


def test_transactional_records_and_markers_are_replayed_live_and_when_loading(
    tmp_path: Path,
) -> None:
    scenario = [
        ("a", 0, -1, -1),
        ("b", 1, 7, 3),
        ("c", 2, 7, 3),
        ("end", 7, 3, True),
        ("d", 4, -1, -1),
    ]

    async def write(world: BrokerWorld) -> None:
        driver = driven(world)
        driver.loaded()
        driver.run(CoordinatorResult(records=[line("a")]))
        driver.run(CoordinatorResult(records=[line("b"), line("c")], producer=ProducerIdAndEpoch(7, 3)))
        marker = EndMarker(committed=True, coordinator_epoch=0)
        driver.partition.append_now(build_end_marker(marker, producer_id=7, producer_epoch=3, timestamp_ms=0))
        driver.transaction_ended(7, 3, is_commit=True)
        driver.run(CoordinatorResult(records=[line("d")]))
        assert driver.shard.calls == scenario
        headers = [read_header(batch) for batch in stored_batches(driver.partition.log, 0, 5)]
        assert [(h.producer_id, h.base_sequence, h.is_transactional, h.is_control) for h in headers] == [
            (-1, -1, False, False),
            (7, -1, True, False),
            (7, -1, True, True),
            (-1, -1, False, False),
        ]

    async def read(world: BrokerWorld) -> None:
        driver = driven(world)
        # The shard is not loaded yet: only loading replays the records.
        driver.transaction_ended(7, 3, is_commit=True)
        ready = asyncio.Event()
        loading = ShardLoading(world.broker.timers)
        loading.load(driver, lambda loaded, offset: ready.set())
        await ready.wait()
        assert driver.shard.calls == scenario

    play(tmp_path, write)
    play(tmp_path, read)


def test_commit_callback_after_all_known_records_are_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: BrokerWorld) -> None:
        driver = driven(world)
        driver.loaded()
        stored: Future[int] = asyncio.get_running_loop().create_future()
        monkeypatch.setattr(world.disk, "sync", lambda log: stored)
        decision = CoordinatorResult[None](records=[line("a")], continuation="then")
        decision.when_committed("token")
        driver.shard.next = CoordinatorResult(records=[line("b")])
        driver.run(decision)
        # Nothing new is written, but the records it depends on are not committed.
        waiting = CoordinatorResult[None]()
        waiting.when_committed("other")
        driver.run(waiting)
        assert driver.shard.calls == [("a", 0, -1, -1), ("then", None)]
        stored.set_result(1)
        await asyncio.sleep(0)
        world.broker.turn.finish()
        assert driver.shard.calls[2:] == [("committed", "token"), ("b", 1, -1, -1), ("committed", "other")]

    play(tmp_path, scenario, flush_policy="commit")


def test_commit_callback_at_the_end_of_the_turn_without_pending_syncs(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld) -> None:
        driver = driven(world)
        driver.loaded()
        decision = CoordinatorResult[None](records=[line("a")])
        decision.when_committed("token")
        driver.run(decision)
        assert driver.shard.calls == [("a", 0, -1, -1)]
        world.broker.turn.finish()
        assert driver.shard.calls == [("a", 0, -1, -1), ("committed", "token")]

    play(tmp_path, scenario)


def test_commit_callback_after_recovery_from_a_failed_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: BrokerWorld) -> None:
        monkeypatch.setattr(shard_driver, "_AWAIT_AGAIN_MS", 0)
        driver = driven(world)
        driver.loaded()
        results: list[OSError | int] = [OSError(errno.EIO, "I/O error"), OSError(errno.EIO, "none yet"), 1]

        def sync(log: object) -> Future[int]:
            stored: Future[int] = asyncio.get_running_loop().create_future()
            result = results.pop(0)
            if isinstance(result, OSError):
                stored.set_exception(result)
            else:
                stored.set_result(result)
            return stored

        monkeypatch.setattr(world.disk, "sync", sync)
        decision = CoordinatorResult[None](records=[line("a")])
        decision.when_committed("token")
        driver.run(decision)
        async with asyncio.timeout(20):
            while len(driver.shard.calls) < 2:
                await asyncio.sleep(0)
        assert driver.shard.calls == [("a", 0, -1, -1), ("committed", "token")]
        assert not results

    play(tmp_path, scenario, flush_policy="commit")


def test_shard_ahead_of_its_log_stops_writing(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld) -> None:
        driver = driven(world)
        driver.loaded()
        driver.run(CoordinatorResult(records=[line("a"), line("b")]))
        driver.run(CoordinatorResult(records=[line("c")]))
        was_ahead = driver.is_ahead
        driver.partition.log.truncate_to(2)
        assert (was_ahead, driver.is_ahead) == (False, True)
        driver.run(CoordinatorResult(records=[line("d")], continuation="then"))
        assert driver.shard.calls[3:] == [("then", ErrorCode.NOT_COORDINATOR)]
        assert driver.partition.log.end_offset == 2
        async with asyncio.timeout(20):
            while not driver.partition.is_leader:
                await asyncio.sleep(0)
        # A marker is stored at the offset of "c" and does not restore it.
        marker = EndMarker(committed=True, coordinator_epoch=0)
        driver.partition.append_now(build_end_marker(marker, producer_id=7, producer_epoch=3, timestamp_ms=0))
        driver.transaction_ended(7, 3, is_commit=True)
        assert driver.is_ahead

    play(tmp_path, scenario)


def test_no_commit_callback_for_rejected_or_lost_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space")

    async def scenario(world: BrokerWorld) -> None:
        driver = driven(world)
        driver.loaded()
        decision = CoordinatorResult[None](records=[line("a")])
        decision.when_committed("refused")
        with monkeypatch.context() as full:
            full.setattr(OsFile, "pwritev", no_space)
            driver.run(decision)
        stored: Future[int] = asyncio.get_running_loop().create_future()
        monkeypatch.setattr(world.disk, "sync", lambda log: stored)
        decision = CoordinatorResult[None](records=[line("b")])
        decision.when_committed("not synced")
        driver.run(decision)
        stored.set_exception(OSError(errno.EIO, "I/O error"))
        await asyncio.sleep(0)
        assert [entry[0] for entry in driver.shard.calls] == ["b"]
        closed = CoordinatorResult[None](records=[line("c")])
        closed.when_committed("another leader")
        last: Future[int] = asyncio.get_running_loop().create_future()
        monkeypatch.setattr(world.disk, "sync", lambda log: last)
        driver.run(closed)
        driver.close()
        last.set_result(driver.partition.log.end_offset)
        await asyncio.sleep(0)
        assert [entry[0] for entry in driver.shard.calls] == ["b", "c"]

    play(tmp_path, scenario, flush_policy="commit")
