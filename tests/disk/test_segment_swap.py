"""Compacted segments are swapped in by a thread, while the event loop reads, drops and stops."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from runnel.batch.header import read_header
from runnel.disk.cleaner import Cleaner
from runnel.disk.disk_log import DiskLog
from runnel.disk.dropping import drop_oldest
from runnel.log.names import CLEANED
from runnel.sim.files import SimFiles
from tests.disk.compacted import CONFIG, ID, NAME, NOW_MS, append, fill, new_files, records, table
from tests.disk.world import HeldWorkers, Place, commit, in_loop, run_now


def opened(files: SimFiles, open_files_max: int = 100) -> DiskLog:
    directory = Place(files, open_files_max=open_files_max).open()
    return commit(directory.open_log(NAME, ID, CONFIG))


def is_swapping(log: DiskLog) -> bool:
    return log.swap is not None


def test_compaction_syncs_nothing_on_the_event_loop() -> None:
    """The file that decides a swap is written, and its folder synced, in a thread."""
    files, workers = new_files(), HeldWorkers()
    log = opened(files)
    fill(log, Random(3))
    expected = table(log)
    synced: list[str] = []

    def watch(operation: str, path: str) -> None:
        if operation in ("datasync", "sync_folder"):
            assert workers.is_working, f"{operation} of {path} on the event loop"
            synced.append(path)

    files.fault = watch
    before = log.size_bytes
    Cleaner(workers, throttle=lambda: None).consider([log], NOW_MS)
    workers.drain()
    assert log.size_bytes < before and table(log) == expected and synced


def during_swaps(files: SimFiles, act: Callable[[str, str], None]) -> None:
    """Act as the event loop while a thread is in the middle of a swap."""
    is_acting = False

    def fault(operation: str, path: str) -> None:
        nonlocal is_acting
        if not is_acting and operation in ("rename", "remove", "sync_folder"):
            is_acting = True
            act(operation, path)
            is_acting = False

    files.fault = fault


@pytest.mark.parametrize("open_files_max", [1, 3, 100])
@pytest.mark.parametrize("seed", range(3))
def test_readers_meet_whole_segments_while_they_are_swapped(seed: int, open_files_max: int) -> None:
    files, workers = new_files(), HeldWorkers()
    log = opened(files, open_files_max)
    fill(log, Random(seed))
    expected = table(log)
    seen = 0

    def read(operation: str, path: str) -> None:
        nonlocal seen
        if workers.is_working:
            assert table(log) == expected, f"at {operation} of {path}"
            last = records(log)[-1]
            assert last.offset == log.end_offset - 1
            seen += 1

    during_swaps(files, read)
    Cleaner(workers, throttle=lambda: None).consider([log], NOW_MS)
    workers.drain()
    assert seen > 5 and table(log) == expected
    assert not any(segment.is_pinned for segment in log.segments.segments)


@in_loop
async def test_a_thread_that_meets_a_swapped_segment_reads_again() -> None:
    """It took positions from the index of the old segment, and skipped records of the new one."""
    files, readers, cleaners = new_files(), HeldWorkers(), HeldWorkers()
    directory = Place(files, read_workers=readers, open_files_max=1).open()
    log = commit(directory.open_log(NAME, ID, replace(CONFIG, segment_bytes=4000)))
    for number in range(60):
        append(log, (b"key-%02d" % (0 if number % 2 else number), bytes(80)))
    run_now(log.read_batches(3, 100, log.end_offset))
    first = log.segments.segments[0]
    assert first.offsets is not None and first.file is None
    read = directory.run_blocking(log.read_batches(10, 100, log.end_offset))
    Cleaner(cleaners, throttle=lambda: None).consider([log], NOW_MS)
    cleaners.drain()
    assert first not in log.segments.segments
    readers.drain()
    assert [read_header(batch).base_offset for batch in read.result()] == [10]


def test_nothing_drops_a_segment_that_is_being_swapped() -> None:
    files, workers = new_files(), HeldWorkers()
    log = opened(files)
    fill(log, Random(5))
    dropped: list[int] = []

    def drop(operation: str, path: str) -> None:
        if workers.is_working and log.swap is not None:
            dropped.append(drop_oldest(log, len(log.segments.segments) - 1))

    during_swaps(files, drop)
    Cleaner(workers, throttle=lambda: None).consider([log], NOW_MS)
    while workers.held and not dropped:
        workers.finish_one()
    assert set(dropped) == {0}
    files.fault = None
    assert log.swap is None
    assert drop_oldest(log, 1) == 1


@pytest.mark.parametrize("end", ["truncate", "remove", "close"])
def test_a_swap_that_waits_for_its_thread_is_finished_by_those_who_cannot_wait(end: str) -> None:
    files, workers = new_files(), HeldWorkers()
    directory = Place(files).open()
    log = commit(directory.open_log(NAME, ID, CONFIG))
    fill(log, Random(6))
    append(log, (b"last", b"one"))
    expected = table(log)
    cleaner = Cleaner(workers, throttle=lambda: None)
    cleaner.consider([log], NOW_MS)
    while not is_swapping(log):
        workers.finish_one()
    if end == "truncate":
        log.truncate_to(log.end_offset - 1)
        del expected[b"last"]
        assert not is_swapping(log)
        assert table(log) == expected
        workers.drain()
        assert table(log) == expected and log.failure is None
    elif end == "remove":
        directory.remove_log(NAME)
        directory.open_log(NAME, ID, CONFIG)
        before = files.names(f"/data/{NAME}")
        workers.drain()
        assert files.names(f"/data/{NAME}") == before
    else:
        directory.close()
        cleaner.stop()
        workers.drain()
        assert table(opened(files)) == expected
    assert not cleaner.is_busy or workers.held == []


def test_a_pass_over_a_removed_log_writes_nothing_beside_its_namesake() -> None:
    """The new log was taken to be clean up to where the old one was: it would have kept deleted keys."""
    steps = 0
    while True:
        files, workers = new_files(), HeldWorkers()
        directory = Place(files).open()
        log = commit(directory.open_log(NAME, ID, CONFIG))
        fill(log, Random(6))
        cleaner = Cleaner(workers, throttle=lambda: None)
        cleaner.consider([log], NOW_MS)
        for _ in range(steps):
            workers.finish_one()
        if not workers.held:
            break
        directory.remove_log(NAME)
        namesake = commit(directory.open_log(NAME, ID, CONFIG))
        fill(namesake, Random(7))
        expected, before = table(namesake), files.names(f"/data/{NAME}")
        workers.drain()
        # Unfinished segments are removed by the next pass.
        left = [name for name in files.names(f"/data/{NAME}") if not name.endswith(CLEANED)]
        assert (left, table(namesake)) == (before, expected), f"after {steps} steps"
        steps += 1
    assert steps > 10


def test_a_swap_that_the_disk_refuses_after_it_was_decided_is_completed_by_the_next_start() -> None:
    files, workers = new_files(), HeldWorkers()
    log = opened(files)
    fill(log, Random(7))
    expected, complaints = table(log), list[str]()

    def fault(operation: str, path: str) -> None:
        if operation == "rename" and path.endswith(".log.cleaned"):
            raise OSError(5, "on purpose", path)

    files.fault = fault
    Cleaner(workers, throttle=lambda: None, report=complaints.append).consider([log], NOW_MS)
    workers.drain()
    assert log.failure is not None and "half way" in log.failure
    assert len(complaints) == 1
    files.fault = None
    log = opened(files)
    assert table(log) == expected and log.failure is None
