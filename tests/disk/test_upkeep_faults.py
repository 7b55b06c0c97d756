"""A log that fails in upkeep does not affect other logs."""

import pytest

from runnel.batch.header import read_header
from runnel.disk.cleaner import RETRY_AFTER_MS, Cleaner
from runnel.disk.data_directory import DataDirectory
from runnel.disk.disk_log import DiskLog
from runnel.disk.workers import InlineWorkers
from runnel.model.ids import TopicPartition
from runnel.model.log_config import LogConfig
from runnel.ports.disk import Origin
from runnel.sim.files import SimFiles
from tests.disk.compacted import CONFIG, ID, NOW_MS, new_files
from tests.disk.test_upkeep import directory, fill
from tests.disk.world import START_MS, Place, append, batch, commit, files_of, in_loop, read_all

EXPIRED = LogConfig(segment_bytes=500, retention_ms=1000)
FIRST, SECOND = TopicPartition("first", 0), TopicPartition("second", 0)
LATE_MS = START_MS + 10_000_000


@in_loop
async def test_a_damaged_log_does_not_stop_retention_of_the_others() -> None:
    """To expire a whole log it is rolled, which needs producers that cannot be loaded."""
    place = Place()
    disk = place.open()
    for name in (FIRST, SECOND):
        log = disk.open_log(name, ID, EXPIRED)
        for number in range(10):
            append(log, batch(bytes(100), producer_id=7, producer_epoch=0, base_sequence=number))
    disk.close()
    files = files_of(place)
    damage_producers(files, f"/data/{FIRST}")
    disk = place.open()
    first, second = (commit(disk.open_log(name, ID, EXPIRED)) for name in (FIRST, SECOND))
    for _ in range(3):
        disk.upkeep(LATE_MS)
    assert (second.log_start_offset, second.end_offset) == (10, 10)
    assert first.log_start_offset == 0


@in_loop
async def test_a_log_with_a_staged_batch_is_expired_without_it(caplog: pytest.LogCaptureFixture) -> None:
    """Upkeep may run between the turn's staging and writing: rolling the segment met an assertion."""
    disk = Place().open()
    log = commit(disk.open_log(FIRST, ID, EXPIRED))
    append(log, batch(bytes(100)))
    log.stage(memoryview(batch(b"new", timestamp_ms=LATE_MS)), 0, LATE_MS, Origin.CLIENT)
    for _ in range(3):
        disk.upkeep(LATE_MS)
    log.write_staged()
    assert caplog.records == []
    assert read_header(read_all(log)[-1]).base_offset == 1


def damage_producers(files: SimFiles, folder: str) -> None:
    """Leave no snapshot, and no way to restore the producers from the batches."""
    for name in files.names(folder):
        if name.endswith(".snapshot"):
            files.remove(f"{folder}/{name}")
        elif name.endswith(".log"):
            files.flip_bit(f"{folder}/{name}", 16, 3)


def cleaning(files: SimFiles, complaints: list[str]) -> tuple[DataDirectory, list[DiskLog]]:
    cleaner = Cleaner(InlineWorkers(), throttle=lambda: None, report=complaints.append, backoff_ms=0)
    disk = directory(files, cleaner)
    logs = [disk.open_log(name, ID, CONFIG) for name in (FIRST, SECOND)]
    for log in logs:
        fill(log)
        disk.flush_soon(log)
    return disk, logs


def test_an_unforeseen_error_sets_one_log_aside_and_others_are_compacted() -> None:
    files, complaints = new_files(), list[str]()
    disk, (first, second) = cleaning(files, complaints)
    sizes = first.size_bytes, second.size_bytes

    def fault(operation: str, path: str) -> None:
        if operation == "pread" and path.startswith(f"/data/{FIRST}/"):
            raise RuntimeError("not foreseen")

    files.fault = fault
    for _ in range(4):
        disk.upkeep(NOW_MS)
    assert first.size_bytes == sizes[0]
    assert second.size_bytes < sizes[1]
    assert [complaint for complaint in complaints if "not foreseen" in complaint] == complaints != []
    files.fault = None
    disk.upkeep(NOW_MS + RETRY_AFTER_MS - 1)
    assert first.size_bytes == sizes[0]
    disk.upkeep(NOW_MS + RETRY_AFTER_MS)
    assert first.size_bytes < sizes[0]


def test_a_look_for_logs_to_compact_is_cut_into_steps() -> None:
    files = new_files()
    cleaner = Cleaner(InlineWorkers(), throttle=lambda: None, backoff_ms=0)
    disk = directory(files, cleaner)
    logs = [disk.open_log(TopicPartition("table", number), ID, CONFIG) for number in range(250)]
    fill(logs[-1])
    fill(logs[0])
    disk.flush_soon(logs[0])
    disk.flush_soon(logs[-1])
    sizes = logs[0].size_bytes, logs[-1].size_bytes
    cleaner.consider(logs, NOW_MS)
    assert not cleaner.is_busy and (logs[0].size_bytes, logs[-1].size_bytes) == sizes
    for _ in range(8):
        cleaner.consider(logs, NOW_MS)
    assert logs[0].size_bytes < sizes[0] and logs[-1].size_bytes < sizes[1]
