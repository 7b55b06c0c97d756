"""Data that must be kept: after corruption, of a recreated log, in an interrupted swap."""

import errno
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from random import Random

import pytest

from runnel.disk.opening import topic_id_of
from runnel.model.errors import ApiError, StorageFailed
from runnel.model.log_config import FlushPolicy, LogConfig
from runnel.ports.disk import Origin
from runnel.sim.files import PowerFailure, SimFiles
from tests.disk import compacted
from tests.disk.world import PARTITION, START_MS, Place, append, batch, in_loop, offsets_of, read_all

COMMIT = LogConfig(flush_policy=FlushPolicy.COMMIT)
SMALL = LogConfig(segment_bytes=300, index_interval_bytes=100)
FOLDER = f"/data/{PARTITION}"


def do_all(workers: compacted.QueueWorkers) -> None:
    while workers.waiting:
        workers.do_one()


def a_durable_log_with_damage(files: SimFiles, place: Place, *, position: int, bit: int) -> list[str]:
    """Segments that were durable, a flipped bit in one, and no clean shutdown; the names of the segments."""
    directory, log = place.open_log(SMALL)
    for number in range(12):
        append(log, batch(b"%d" % number * 20))
    directory.close()
    # As a crash leaves it: the recovery points are there, the manifest is not.
    files.remove("/data/clean-shutdown-manifest")
    names = sorted(name for name in files.names(FOLDER) if name.endswith(".log"))
    files.flip_bit(f"{FOLDER}/{names[-1]}", position, bit)
    return names


def segment_bytes(files: SimFiles) -> dict[str, bytes]:
    names = sorted(name for name in files.names(FOLDER) if name.endswith(".log"))
    return {name: files.read(f"{FOLDER}/{name}") for name in names}


@pytest.mark.parametrize(
    ("position", "bit"),
    [(16, 3), (8, 6)],
    ids=["another format", "a length beyond the end of the file"],
)
def test_damage_in_durable_records_is_still_there_after_any_number_of_starts(position: int, bit: int) -> None:
    files = SimFiles()
    place = Place(files)
    a_durable_log_with_damage(files, place, position=position, bit=bit)
    before = segment_bytes(files)
    for start in range(3):
        directory, log = place.open_log(SMALL)
        assert log.failure is not None, start
        place.clock.ms += 120_000
        directory.upkeep(place.clock.ms)
        place.clock.ms += 120_000
        directory.upkeep(place.clock.ms)
        directory.close()
        assert segment_bytes(files) == before


@in_loop
async def test_a_late_sync_of_a_deleted_log_leaves_its_namesake_alone() -> None:
    files, workers = SimFiles(), compacted.QueueWorkers()
    place = Place(files, workers=workers)
    directory, old = place.open_log(COMMIT)
    append(old, batch(b"old", producer_id=7, producer_epoch=0, base_sequence=0))
    late = directory.sync(old)
    directory.remove_log(PARTITION)
    new_id = bytes(15) + b"\x07"
    new = directory.open_log(PARTITION, new_id, LogConfig())
    append(new, batch(b"new"))
    do_all(workers)
    assert late.done()
    late.exception()
    # The process is killed: nothing was synced, and nothing is lost.
    after = Place(files).open()
    assert topic_id_of(files, FOLDER) == new_id
    assert offsets_of(read_all(after.open_log(PARTITION, new_id, LogConfig()))) == [0]


@in_loop
async def test_a_deleted_log_is_not_repaired_in_the_files_of_a_recreated_one() -> None:
    files, workers = SimFiles(), compacted.QueueWorkers()
    place = Place(files, workers=workers)
    directory, old = place.open_log(COMMIT)
    append(old, batch(b"old"))
    late = directory.sync(old)
    directory.remove_log(PARTITION)
    # Its folder does not exist any more, so this sync fails.
    do_all(workers)
    assert late.exception() is not None
    new = directory.open_log(PARTITION, bytes(15) + b"\x07", LogConfig())
    for _ in range(5):
        append(new, batch(b"new"))
    for _ in range(3):
        place.clock.ms += 1000
        directory.upkeep(place.clock.ms)
        do_all(workers)
    assert offsets_of(read_all(new)) == [0, 1, 2, 3, 4]


@in_loop
async def test_a_clock_that_is_set_back_does_not_put_flushes_off() -> None:
    place = Place()
    directory, log = place.open_log(LogConfig(flush_policy=FlushPolicy.INTERVAL))
    append(log, batch(b"a"))
    directory.upkeep(START_MS)
    assert log.durable_offset == 0
    directory.upkeep(START_MS - 3_600_000)
    assert log.durable_offset == 1


def test_a_log_is_removed_from_a_full_disk_and_its_namesake_inherits_nothing() -> None:
    files = SimFiles()
    place = Place(files)
    directory, log = place.open_log()
    for _ in range(5):
        append(log, batch(b"old"))
    log.delete_records_before(4)
    files.fault = no_room_for_checkpoints
    directory.remove_log(PARTITION)
    assert not files.exists(FOLDER)
    new = directory.open_log(PARTITION, bytes(15) + b"\x07", LogConfig())
    append(new, batch(b"new"))
    directory.upkeep(START_MS)
    directory.upkeep(START_MS + 100_000)
    files.fault = None
    # The process is killed.
    again = Place(files).open().open_log(PARTITION, bytes(15) + b"\x07", LogConfig())
    assert again.log_start_offset == 0
    assert offsets_of(read_all(again)) == [0]


def no_room_for_checkpoints(operation: str, path: str) -> None:
    if "checkpoint" in path and operation != "pread":
        raise OSError(errno.ENOSPC, "no space left on device", path)


def test_a_roll_that_is_planned_twice_is_one() -> None:
    """A refused batch has planned a roll, then the index is full."""
    config = replace(SMALL, segment_bytes=500, segment_index_bytes=24, index_interval_bytes=10)
    _, log = Place().open_log(config)
    append(log, batch(b"x" * 100, producer_id=1, producer_epoch=0, base_sequence=0))
    log.stage(memoryview(batch(b"y" * 100)), 0, START_MS, Origin.CLIENT)
    # It is out of order, which shows only after a roll was planned for its large batch.
    late = batch(b"z" * 200, producer_id=1, producer_epoch=0, base_sequence=3)
    with pytest.raises(ApiError):
        log.stage(memoryview(late), 0, START_MS, Origin.CLIENT)
    log.write_staged()
    assert append(log, batch(b"w" * 100)) == 2
    assert offsets_of(read_all(log)) == [0, 1, 2]


def fail_at(number: int) -> Callable[[str, str], None]:
    """A disk that refuses the changing operation of this number, once."""
    count = [0]

    def fault(operation: str, path: str) -> None:
        if operation != "pread":
            count[0] += 1
            if count[0] == number:
                raise OSError(errno.EIO, "input/output error", path)

    return fault


@pytest.mark.parametrize("kill_after", [4, 8, 10_000])
def test_a_cleaning_that_the_disk_refuses_at_any_step_loses_nothing(kill_after: int) -> None:
    files = compacted.new_files()
    disk = compacted.directory(files)
    log = disk.open_log(compacted.NAME, compacted.ID, compacted.CONFIG)
    compacted.fill(log, Random(1), count=25)
    expected, end_offset = compacted.table(log), log.end_offset
    disk.close()
    number, is_over = 0, False
    while not is_over:
        number += 1
        trial = deepcopy(files)
        # Larger segments than before: several old ones become one.
        log = compacted.open_log(trial, replace(compacted.CONFIG, segment_bytes=3000))
        operations = trial.operations
        trial.fault = fail_at(number)
        compacted.cleaner().consider([log], compacted.NOW_MS)
        is_over = trial.operations - operations < number
        # The disk works again, and the process is killed some steps into the next pass.
        trial.fault = None
        trial.power_failure_at = trial.operations + kill_after
        with suppress(PowerFailure):
            compacted.cleaner().consider([log], compacted.NOW_MS)
        trial.power_failure_at = -1
        again = compacted.open_log(trial)
        assert again.end_offset == end_offset, number
        assert compacted.table(again) == expected, number


@in_loop
async def test_a_log_found_on_a_full_disk_is_made_durable_without_room() -> None:
    files = SimFiles()
    place = Place(files)
    directory, log = place.open_log(COMMIT)
    append(log, batch(b"kept"))
    await directory.sync(log)
    append(log, batch(b"killed before its sync"))
    files.capacity_bytes -= files.space_bytes("/")[1]
    directory, log = Place(files).open_log(COMMIT)
    assert await directory.sync(log) == 2
    with pytest.raises(StorageFailed):
        append(log, batch(b"no room"))
    assert offsets_of(read_all(log)) == [0, 1]
