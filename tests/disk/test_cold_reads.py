"""Reads of what is neither in the page cache nor in a loaded index happen in a thread."""

import asyncio
import os
from collections.abc import Callable
from random import Random

import pytest

from runnel.disk.disk_log import DiskLog
from runnel.disk.os_files import OsFiles
from runnel.disk.workers import LoopWorkers
from runnel.model.errors import ApiError
from runnel.model.log_config import LogConfig
from runnel.ports.disk import BlockingRead, NotResident, OpenFile, Slice
from runnel.sim.files import SimFiles
from tests.disk.world import (
    EVERYTHING,
    START_MS,
    HeldWorkers,
    Place,
    append,
    batch,
    files_of,
    in_loop,
    offsets_of,
    read_all,
    run_now,
    slice_bytes,
)

SMALL = LogConfig(segment_bytes=4000, index_interval_bytes=300)


def fill(log: DiskLog, count: int = 60) -> None:
    for number in range(count):
        append(log, batch(bytes(200), timestamp_ms=START_MS + 10 * number))


def cold(path: str, position: int, length: int) -> bool:
    return not path.endswith(".log")


def read_hot(log: DiskLog, offset: int, max_bytes: int = 1000) -> Slice:
    return log.read(offset, max_bytes, EVERYTHING, at_least_one=True, may_block=False)


def has_index(log: DiskLog) -> bool:
    return log.segments.segments[0].offsets is not None


def load(missing: BlockingRead[None]) -> None:
    missing.run()
    missing.finish()


@in_loop
async def test_a_cold_read_is_loaded_by_a_thread_and_then_answered() -> None:
    workers = HeldWorkers()
    place = Place(read_workers=workers)
    directory, log = place.open_log(SMALL)
    fill(log)
    directory.close()
    directory, log = place.open_log(SMALL)
    files_of(place).is_resident = cold
    with pytest.raises(NotResident) as caught:
        read_hot(log, 3)
    loaded = directory.run_blocking(caught.value.load)
    assert not loaded.done()
    assert not has_index(log)
    workers.finish_one()
    await loaded
    assert has_index(log)
    found = log.read(3, 1000, EVERYTHING, at_least_one=True, may_block=True)
    assert offsets_of([slice_bytes(found)]) == [3]


@in_loop
async def test_what_was_just_written_is_read_without_a_probe() -> None:
    place = Place()
    directory, log = place.open_log(LogConfig())
    fill(log)

    def no_probe(path: str, position: int, length: int) -> bool:
        raise AssertionError("the page cache was probed")

    files_of(place).is_resident = no_probe
    directory.upkeep(START_MS)
    append(log, batch(b"new"))
    assert offsets_of([slice_bytes(read_hot(log, 60))]) == [60]
    files_of(place).is_resident = cold
    directory.upkeep(START_MS)
    directory.upkeep(START_MS)
    with pytest.raises(NotResident):
        read_hot(log, 60)


def test_all_that_is_resident_and_indexed_is_read_at_once() -> None:
    place = Place()
    directory, log = place.open_log(SMALL)
    fill(log)
    directory.close()
    _, log = place.open_log(SMALL)
    expected = read_all(log)
    offset = 0
    found: list[bytes] = []
    while offset < log.end_offset:
        try:
            part = read_hot(log, offset, 700)
        except NotResident as missing:
            # Only an index can be missing, and is loaded once for each segment.
            load(missing.load)
            part = read_hot(log, offset, 700)
        found.append(slice_bytes(part))
        offset = part.end_offset
    assert b"".join(found) == b"".join(expected)


@in_loop
async def test_lookups_by_time_run_on_a_view_while_the_log_changes() -> None:
    workers = HeldWorkers()
    directory, log = Place(read_workers=workers).open_log(SMALL)
    fill(log)
    expected = run_now(log.find_timestamp(START_MS + 250, EVERYTHING))
    assert expected is not None and expected.offset == 25
    lookups = [
        directory.run_blocking(log.find_timestamp(START_MS + 250, EVERYTHING)),
        directory.run_blocking(log.find_max_timestamp(EVERYTHING)),
    ]
    fill(log, 20)
    workers.drain()
    assert [found.offset for found in (lookups[0].result(), lookups[1].result()) if found] == [25, 59]


@in_loop
async def test_a_lookup_whose_segment_is_removed_meanwhile_is_run_again() -> None:
    workers = HeldWorkers()
    place = Place(read_workers=workers, open_files_max=1)
    directory, log = place.open_log(SMALL)
    fill(log)
    lookup = directory.run_blocking(log.find_timestamp(START_MS, EVERYTHING))
    log.delete_records_before(30)
    workers.drain()
    found = lookup.result()
    assert found is not None and found.offset == 30


@in_loop
async def test_a_read_whose_offset_is_deleted_meanwhile_is_out_of_range() -> None:
    """It was never answered: the exception of the second attempt ended up in the event loop."""
    workers = HeldWorkers()
    directory, log = Place(read_workers=workers, open_files_max=1).open_log(SMALL)
    fill(log)
    read = directory.run_blocking(log.read_batches(0, 1000, EVERYTHING))
    log.delete_records_before(30)
    workers.drain()
    with pytest.raises(ApiError, match="holds offsets 30 to 60, not 0"):
        read.result()


@in_loop
async def test_batches_are_read_by_a_thread_a_piece_at_a_time() -> None:
    directory, log = Place().open_log(SMALL)
    fill(log)
    found: list[bytes] = []
    offset = 0
    while offset < log.end_offset:
        some = await directory.run_blocking(log.read_batches(offset, 1000, EVERYTHING))
        assert 1 <= len(some) <= 6
        found += [bytes(one) for one in some]
        offset = offsets_of(found)[-1] + 1
    assert found == read_all(log)


@in_loop
async def test_a_damaged_file_fails_the_read_that_met_it() -> None:
    place = Place()
    directory, log = place.open_log(LogConfig(index_interval_bytes=300))
    fill(log)
    files_of(place).open(f"{log.segments.folder}/{0:020}.log").truncate(5000)
    with pytest.raises(Exception, match="position"):
        await directory.run_blocking(log.find_timestamp(START_MS + 590, EVERYTHING))


@pytest.mark.parametrize("seed", range(10))
def test_aborted_transactions_are_loaded_as_they_are_found(seed: int) -> None:
    from tests.disk.test_transactions import TransactionHistory, Walk

    history = TransactionHistory(seed)
    place, walk = Place(SimFiles()), Walk()
    config = LogConfig(segment_bytes=1500)
    directory, log = place.open_log(config)
    for _ in range(80):
        data, origin = history.some_batch(walk)
        log.stage(memoryview(data), 0, START_MS, origin)
        walk.meet(bytes(data))
        log.write_staged()
    directory.close()
    _, log = place.open_log(config)
    expected = place_twin(place, config, lambda twin: twin.aborted_transactions(0, EVERYTHING))
    first = Random(seed).randrange(log.end_offset)
    try:
        log.aborted_transactions(first, EVERYTHING, may_block=False)
    except NotResident as missing:
        load(missing.load)
    assert log.aborted_transactions(0, EVERYTHING) == expected


def place_twin(
    place: Place, config: LogConfig, ask: Callable[[DiskLog], list[tuple[int, int]]]
) -> list[tuple[int, int]]:
    """The state of a log that was opened separately."""
    return ask(place.open_log(config)[1])


def evict(file: OpenFile) -> None:
    """Advise the kernel to drop a file from its page cache. It may keep pages, or read them ahead."""
    os.fsync(file.fileno())
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@in_loop
async def test_the_kernel_is_asked_what_is_in_its_page_cache(tmp_path: object) -> None:
    files = OsFiles()
    file = files.open(f"{tmp_path}/data", create=True)
    file.pwritev([bytes(1024 * 1024)], 0)
    assert file.is_resident(0, 1024 * 1024)
    assert file.is_resident(2 * 1024 * 1024, 4096)
    place = Place(files, f"{tmp_path}/logs", read_workers=LoopWorkers(1, "read"))
    directory, log = place.open_log(LogConfig())
    fill(log, 500)
    await directory.sync(log)
    directory.upkeep(START_MS)
    directory.upkeep(START_MS)
    log_file = log.segments.active.file
    assert log_file is not None
    for _ in range(100):
        evict(log_file)
        try:
            read_hot(log, 100)
        except NotResident as missing:
            await directory.run_blocking(missing.load)
            break
        await asyncio.sleep(0.01)
    else:
        pytest.skip("this file system keeps its pages, or cannot be probed")
    assert offsets_of([slice_bytes(read_hot(log, 100, 300))]) == [100]
    directory.close()


def test_sequential_small_reads_share_a_block_of_the_page_cache() -> None:
    files = SimFiles()
    _, log = Place(files).open_log(LogConfig(segment_bytes=100_000))
    fill(log)
    everything = read_all(log)
    size = len(everything[0])
    expected = [slice_bytes(log.read(offset, size, EVERYTHING, at_least_one=True)) for offset in range(59)]
    reads = 0
    pread = files.inject_faults

    def counted(operation: str, path: str) -> None:
        nonlocal reads
        reads += operation == "pread"
        pread(operation, path)

    files.inject_faults = counted  # type: ignore[method-assign]
    found = [slice_bytes(read_hot(log, offset, size)) for offset in range(59)]
    assert found == expected == [bytes(data) for data in everything[:59]]
    # The position of the first one is looked for; the others are found where the one before it ends.
    assert reads <= 59 // 16 + 4


def test_a_block_that_was_read_ahead_does_not_outlive_a_truncation() -> None:
    _, log = Place().open_log(LogConfig(segment_bytes=100_000))
    fill(log, 10)
    size = len(read_all(log)[0])
    for offset in range(4):
        read_hot(log, offset, size)
    log.truncate_to(2)
    for number in range(20):
        append(log, batch(bytes([number]) * 200))
    expected = read_all(log)
    for offset in range(20):
        assert slice_bytes(read_hot(log, offset, size)) == bytes(expected[offset])


def test_small_reads_of_cold_data_do_not_wait() -> None:
    place = Place()
    _, log = place.open_log(LogConfig(segment_bytes=100_000))
    fill(log)
    size = len(read_all(log)[0])
    log.reader.time_passed()
    log.reader.time_passed()
    read_hot(log, 0, size)
    files_of(place).is_resident = cold
    log.segments.read_ahead.clear()
    with pytest.raises(NotResident):
        read_hot(log, 1, size)
