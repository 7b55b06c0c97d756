"""Group commit: which callers wait for which fdatasync, and failures."""

import asyncio
import errno
from random import Random

import pytest

from runnel.disk.workers import LoopWorkers
from runnel.log.checkpoints import encode_epochs
from runnel.log.names import EPOCHS
from runnel.model.errors import StorageFailed
from runnel.model.log_config import FlushPolicy, LogConfig
from runnel.sim.files import SimFiles
from tests.disk.world import START_MS, HeldWorkers, Place, append, batch, in_loop, offsets_of, read_all

COMMIT = LogConfig(flush_policy=FlushPolicy.COMMIT)


def datasyncs(files: SimFiles) -> list[str]:
    """The paths that are synced from now on."""
    seen: list[str] = []
    files.fault = lambda operation, path: seen.append(path) if operation == "datasync" else None
    return seen


@in_loop
async def test_all_who_wait_share_one_sync() -> None:
    files, workers = SimFiles(), HeldWorkers()
    directory, log = Place(files, workers=workers).open_log(COMMIT)
    append(log, batch(b"a"))
    first = directory.sync(log)
    # These come after the first sync has begun: their records may have missed it.
    append(log, batch(b"b"))
    others = [directory.sync(log) for _ in range(5)]
    assert len(workers.held) == 1
    assert log.durable_offset == 0
    seen = datasyncs(files)
    workers.finish_one()
    assert (await first, log.durable_offset) == (1, 1)
    assert not any(other.done() for other in others)
    workers.finish_one()
    assert [await other for other in others] == [2] * 5
    assert [path for path in seen if path.endswith(".log")] == ["/data/orders-0/00000000000000000000.log"] * 2
    assert not workers.held


@in_loop
async def test_what_is_written_while_a_sync_runs_is_not_called_durable() -> None:
    workers = HeldWorkers()
    directory, log = Place(workers=workers).open_log(COMMIT)
    append(log, batch(b"a", b"b"))
    future = directory.sync(log)
    append(log, batch(b"c"))
    workers.finish_one()
    assert await future == 2
    assert (log.durable_offset, log.written_offset) == (2, 3)


@in_loop
async def test_a_log_with_nothing_new_answers_at_once() -> None:
    workers = HeldWorkers()
    directory, log = Place(workers=workers).open_log(COMMIT)
    append(log, batch(b"a"))
    future = directory.sync(log)
    workers.drain()
    await future
    again = directory.sync(log)
    assert again.done()
    assert again.result() == 1


@in_loop
async def test_the_name_of_a_new_segment_is_durable_before_its_records_are() -> None:
    files = SimFiles()
    place = Place(files)
    directory, log = place.open_log(LogConfig(flush_policy=FlushPolicy.COMMIT, segment_bytes=300))
    for _ in range(5):
        append(log, batch(bytes(100)))
        await directory.sync(log)
    files.lose_power(Random(1))
    _, log = place.open_log()
    assert offsets_of(read_all(log)) == list(range(5))


@in_loop
async def test_after_a_failed_sync_writes_are_rejected_until_the_repair() -> None:
    files = SimFiles()
    place = Place(files)
    directory, log = place.open_log(COMMIT)
    append(log, batch(b"a"))
    await directory.sync(log)
    append(log, batch(b"b"))

    def fault(operation: str, path: str) -> None:
        if operation == "datasync" and path.endswith(".log"):
            raise OSError(errno.EIO, "on purpose", path)

    files.fault = fault
    with pytest.raises(StorageFailed):
        await directory.sync(log)
    with pytest.raises(StorageFailed):
        append(log, batch(b"c"))
    with pytest.raises(StorageFailed):
        await directory.sync(log)
    assert log.durable_offset == 1
    assert offsets_of(read_all(log)) == [0, 1]
    files.fault = None
    directory.upkeep(START_MS)
    append(log, batch(b"c"))
    assert await directory.sync(log) == 3
    # The first failure made the kernel forget that the page of b was dirty: only writing it again helps.
    files.lose_power(Random(1))
    _, log = place.open_log(COMMIT)
    assert offsets_of(read_all(log)) == [0, 1, 2]


@in_loop
async def test_every_waiter_hears_of_a_failed_sync() -> None:
    files, workers = SimFiles(), HeldWorkers()
    directory, log = Place(files, workers=workers).open_log(COMMIT)
    append(log, batch(b"a"))
    first, second = directory.sync(log), directory.sync(log)

    def fault(operation: str, path: str) -> None:
        if operation == "datasync":
            raise OSError(errno.EIO, "on purpose", path)

    files.fault = fault
    workers.finish_one()
    for future in (first, second):
        with pytest.raises(StorageFailed):
            await future
    assert not workers.held


@in_loop
async def test_so_many_messages_ask_for_a_flush() -> None:
    workers = HeldWorkers()
    _, log = Place(workers=workers).open_log(LogConfig(flush_messages=3))
    append(log, batch(b"a", b"b"))
    assert not workers.held
    append(log, batch(b"c"))
    workers.drain()
    assert log.durable_offset == 3


@pytest.mark.parametrize(
    ("config", "wait_ms"),
    [(LogConfig(flush_policy=FlushPolicy.INTERVAL), 1000), (LogConfig(flush_ms=300), 300)],
)
@in_loop
async def test_so_much_time_asks_for_a_flush(config: LogConfig, wait_ms: int) -> None:
    directory, log = Place().open_log(config)
    append(log, batch(b"a"))
    directory.upkeep(START_MS)
    directory.upkeep(START_MS + wait_ms - 1)
    assert log.durable_offset == 0
    directory.upkeep(START_MS + wait_ms)
    assert log.durable_offset == 1
    append(log, batch(b"b"))
    directory.upkeep(START_MS + wait_ms)
    directory.upkeep(START_MS + 2 * wait_ms)
    assert log.durable_offset == 2


@in_loop
async def test_without_a_policy_only_closed_segments_are_synced() -> None:
    files = SimFiles()
    directory, log = Place(files).open_log(LogConfig(segment_bytes=300))
    for _ in range(5):
        append(log, batch(bytes(100)))
    directory.upkeep(START_MS + 10**6)
    assert log.durable_offset == log.segments.active.base_offset > 0


@in_loop
async def test_closing_waits_for_syncs_in_flight() -> None:
    workers = HeldWorkers()
    place = Place(workers=workers)
    directory, log = place.open_log(COMMIT)
    append(log, batch(b"a"))
    first, second = directory.sync(log), directory.sync(log)
    directory.close()
    assert await first == 1
    # The one that had not begun is answered as well.
    assert second.done()
    second.exception()
    _, log = place.open_log(COMMIT)
    assert log.durable_offset == 1


@in_loop
async def test_threads_tell_the_loop() -> None:
    workers = LoopWorkers(2, "test")
    outcomes: asyncio.Queue[tuple[object, BaseException | None]] = asyncio.Queue()
    workers.submit(lambda: 7, lambda result, failure: outcomes.put_nowait((result, failure)))
    assert await outcomes.get() == (7, None)

    def fail() -> int:
        raise OSError(errno.EIO, "on purpose")

    workers.submit(fail, lambda result, failure: outcomes.put_nowait((result, failure)))
    result, failure = await outcomes.get()
    assert result is None
    assert isinstance(failure, OSError)
    assert workers.run_all([lambda: 1, lambda: 2]) == [1, 2]
    (outcome,) = workers.run_all([fail])
    assert isinstance(outcome, OSError)
    workers.close()


def refuse_epochs(files: SimFiles) -> None:
    """Let the disk be full whenever the leader epochs are stored."""

    def fault(operation: str, path: str) -> None:
        if operation == "pwritev" and EPOCHS in path:
            raise OSError(errno.ENOSPC, "on purpose", path)

    files.fault = fault


@in_loop
async def test_records_are_durable_though_a_full_disk_cannot_store_their_leader_epoch() -> None:
    files = SimFiles()
    place = Place(files)
    directory, log = place.open_log(COMMIT)
    append(log, batch(b"a"))
    await directory.sync(log)
    refuse_epochs(files)
    for count, value in enumerate((b"b", b"c"), 2):
        append(log, batch(value), leader_epoch=1)
        assert (await directory.sync(log), log.durable_offset) == (count, count)
        # Recovery reads the epoch from the batches, as long as it checks them.
        assert log.durability.recovery_point == 1
    files.fault = None
    files.lose_power(Random(1))
    _, log = place.open_log(COMMIT)
    assert offsets_of(read_all(log)) == [0, 1, 2]
    assert log.epochs.entries == ((0, 0), (1, 1))


@in_loop
async def test_the_recovery_point_advances_once_the_leader_epochs_are_stored() -> None:
    files = SimFiles()
    directory, log = Place(files).open_log(COMMIT)
    append(log, batch(b"a"))
    refuse_epochs(files)
    assert await directory.sync(log) == 1
    assert log.durability.recovery_point == 0
    files.fault = None
    # Nothing was appended, yet the epochs are still to be stored.
    assert await directory.sync(log) == 1
    assert log.durability.recovery_point == 1
    assert files.read(f"/data/orders-0/{EPOCHS}") == encode_epochs(((0, 0),))
