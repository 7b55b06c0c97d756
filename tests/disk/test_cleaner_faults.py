"""Compaction with faults: power failures at every step, full disks, corruption, concurrent operations."""

import asyncio
from copy import deepcopy
from random import Random

import pytest

from runnel.disk.cleaner import Cleaner
from runnel.disk.cleaning_plan import read_cleaner_checkpoint
from runnel.disk.data_directory import DataDirectory
from runnel.disk.dropping import drop_oldest
from runnel.disk.os_files import OsFiles
from runnel.disk.workers import LoopWorkers
from runnel.log.names import CLEANED
from runnel.sim.files import PowerFailure, SimFiles
from tests.disk.compacted import (
    CONFIG,
    ID,
    NAME,
    NOW_MS,
    QueueWorkers,
    Still,
    append,
    cleaner,
    compact,
    directory,
    fill,
    leftovers,
    new_files,
    open_log,
    problems,
    records,
    table,
)


@pytest.fixture
def files() -> SimFiles:
    return new_files()


def cleaning_operations(files: SimFiles) -> range:
    """The numbers of the file operations that one cleaning consists of."""
    trial = deepcopy(files)
    log = open_log(trial)
    first = trial.operations + 1
    compact(log)
    return range(first, trial.operations + 1)


@pytest.mark.parametrize("seed", range(3))
def test_a_crash_at_any_step_leaves_the_table_whole(files, seed):
    disk = directory(files)
    log = disk.open_log(NAME, ID, CONFIG)
    fill(log, Random(seed), count=25)
    expected, end_offset = table(log), log.end_offset
    disk.close()
    operations = cleaning_operations(files)
    assert len(operations) > 30
    for number in operations:
        world = deepcopy(files)
        log = open_log(world)
        world.power_failure_at = number
        with pytest.raises(PowerFailure):
            compact(log)
        world.power_failure_at = -1
        if seed % 2 == 0:
            world.lose_power(Random(number))
        log = open_log(world)
        assert (table(log), log.end_offset, log.failure) == (expected, end_offset, None), number
        assert leftovers(world) == []
        append(log, (b"key-0", b"after"))
        assert problems(world) == []


def test_a_full_disk_stops_the_cleaning_and_nothing_else(files):
    log = open_log(files)
    fill(log, Random(9))
    expected = table(log)
    complaints: list[str] = []
    hopeful = cleaner(report=complaints.append, backoff_ms=0)

    def fault(operation: str, path: str) -> None:
        if path.endswith(CLEANED) and operation == "pwritev":
            raise OSError(28, "no space left on device")

    files.fault = fault
    hopeful.consider([log], NOW_MS)
    assert len(complaints) == 1 and "no space left" in complaints[0]
    assert table(log) == expected and leftovers(files) == []
    append(log, (b"key-0", b"still here"))
    files.fault = None
    hopeful.consider([log], NOW_MS + 59_999)
    assert read_cleaner_checkpoint(log) == 0, "it waits before it tries again"
    hopeful.consider([log], NOW_MS + 60_000)
    assert read_cleaner_checkpoint(log) > 0 and len(complaints) == 1
    assert table(log) == {**expected, b"key-0": b"still here"}


def test_a_damaged_segment_is_left_as_it_is(files):
    log = open_log(files)
    fill(log, Random(10))
    segment = log.closed_segments()[2]
    before = files.read(log.segments.path(segment, ".log"))
    files.flip_bit(log.segments.path(segment, ".log"), 70)
    complaints: list[str] = []
    wary = cleaner(report=complaints.append)
    wary.consider([log], NOW_MS)
    wary.consider([log], NOW_MS + 10**9)
    assert len(complaints) == 1 and "damaged" in complaints[0]
    assert not wary.is_busy and read_cleaner_checkpoint(log) == 0 and leftovers(files) == []
    assert len(files.read(log.segments.path(segment, ".log"))) == len(before)


@pytest.mark.parametrize("work_done", [0, 1, 5, None])
def test_segments_that_retention_takes_meanwhile_do_not_come_back(files, work_done):
    log = open_log(files)
    fill(log, Random(14))
    queue = QueueWorkers()
    complaints: list[str] = []
    Cleaner(queue, throttle=lambda: None, report=complaints.append).consider([log], NOW_MS)
    # None: all keys are noted, and the first group is being written.
    for _ in range(len(log.closed_segments()) + 1 if work_done is None else work_done):
        queue.do_one()
    drop_oldest(log, 2 if work_done is None else 7)
    expected = table(log)
    while queue.waiting:
        queue.do_one()
    assert table(log) == expected
    assert (read_cleaner_checkpoint(log), complaints) == (0, []), "the pass was given up"
    compact(log)
    assert table(log) == expected and read_cleaner_checkpoint(log) > 0


def test_what_a_stopped_pass_left_behind_is_removed_by_the_next(files):
    log = open_log(files)
    fill(log, Random(18))
    stale = f"/data/table-0/{log.end_offset:020d}.log{CLEANED}"
    files.write(stale, b"half a segment", sync=True)
    compact(log)
    assert leftovers(files) == []


def test_a_log_that_failed_is_not_touched(files):
    log = open_log(files)
    fill(log, Random(19))
    log.fail("to be inspected", can_repair=False)
    operations = files.operations
    compact(log)
    assert files.operations == operations


def test_a_stopped_cleaner_leaves_nothing_behind(files):
    log = open_log(files)
    fill(log, Random(15))
    expected = records(log)
    for work_done in range(len(log.closed_segments()) + 1):
        queue = QueueWorkers()
        stopping = Cleaner(queue, throttle=lambda: None)
        stopping.consider([log], NOW_MS)
        for _ in range(work_done):
            queue.do_one()
        stopping.stop()
        while queue.waiting:
            queue.do_one()
        assert not stopping.is_busy and leftovers(files) == [] and records(log) == expected
        stopping.consider([log], NOW_MS)
        assert queue.waiting == []


def test_producers_write_while_a_thread_cleans(tmp_path):
    """Real files, real threads, a real loop: with any interleaving, the table is the model's."""
    twin: dict[bytes, bytes] = {}

    async def scenario() -> None:
        disk = DataDirectory(
            str(tmp_path),
            files=OsFiles(),
            clock=Still(),
            entropy=Still(),
            write_workers=LoopWorkers(1, "write"),
            sync_workers=LoopWorkers(1, "sync"),
            upkeep_workers=LoopWorkers(1, "upkeep"),
            read_workers=LoopWorkers(1, "read"),
        )
        log = disk.open_log(NAME, ID, CONFIG)
        workers = LoopWorkers(1, "cleaner")
        busy = Cleaner(workers, backoff_ms=0)
        random = Random(17)
        passes = 0
        while passes < 5 or busy.is_busy:
            key, value = b"key-%d" % random.randrange(20), b"%d" % random.randrange(10**6)
            append(log, (key, value))
            twin[key] = value
            was_busy = busy.is_busy
            busy.consider([log] if passes < 5 else [], NOW_MS)
            passes += busy.is_busy and not was_busy
            await asyncio.sleep(0.001)
        assert table(log) == twin
        workers.close()
        disk.close()

    asyncio.run(scenario())
    log = directory(OsFiles(), str(tmp_path)).open_log(NAME, ID, CONFIG)
    assert table(log) == twin
