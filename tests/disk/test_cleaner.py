"""Compaction of a log: the last value of each key is unchanged, with any settings."""

from copy import deepcopy
from random import Random

import pytest

from runnel.batch.header import read_header
from runnel.batch.records import Record, iterate_records
from runnel.disk.cleaner import Cleaner
from runnel.disk.cleaning_plan import plan_cleaning, read_cleaner_checkpoint
from runnel.disk.disk_log import DiskLog
from runnel.model.ids import TopicPartition
from runnel.model.log_config import LogConfig
from runnel.sim.files import SimFiles
from tests.disk.compacted import (
    CONFIG,
    ID,
    NAME,
    NOW_MS,
    QueueWorkers,
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
from tests.stored import stored_batches


@pytest.fixture
def files() -> SimFiles:
    return new_files()


@pytest.mark.parametrize("seed", range(5))
def test_a_compacted_log_tells_the_same_table_before_and_after_restarts(files, seed):
    disk = directory(files)
    log = disk.open_log(NAME, ID, CONFIG)
    fill(log, Random(seed))
    expected, end_offset, before = table(log), log.end_offset, log.size_bytes
    active_base = log.segments.active.base_offset
    compact(log)
    assert (table(log), log.end_offset) == (expected, end_offset)
    settled = [record.key for record in records(log) if record.offset < active_base]
    assert len(settled) == len(set(settled))
    assert log.size_bytes < before / 2
    assert log.size_bytes == sum(
        files.size_bytes(log.segments.path(s, ".log")) for s in log.segments.segments
    )
    assert problems(files) == [] and leftovers(files) == []
    kept = records(log)
    assert records(open_log(deepcopy(files))) == kept, "after a crash"
    disk.close()
    again = open_log(files)
    assert records(again) == kept, "after a clean shutdown"
    assert append(again, (b"key-0", b"new")) == end_offset


def test_nothing_is_done_twice(files):
    log = open_log(files)
    fill(log, Random(1))
    compact(log)
    assert read_cleaner_checkpoint(log) == log.segments.active.base_offset
    assert plan_cleaning(log, NOW_MS) is None
    operations = files.operations
    compact(log)
    assert files.operations == operations


def test_tombstones_go_after_their_retention_when_the_log_is_cleaned_again(files):
    log = open_log(files)
    append(log, (b"deleted", b"1"))
    append(log, (b"deleted", None))
    fill(log, Random(2))
    compact(log)
    tombstones = [record.key for record in records(log) if record.value is None]
    assert b"deleted" in tombstones
    fill(log, Random(3))
    expected = table(log)
    compact(log, NOW_MS + 1000)
    assert b"deleted" not in [record.key for record in records(log)]
    assert table(log) == expected


def test_small_segments_are_joined(files):
    log = open_log(files)
    fill(log, Random(4), count=150)
    many = len(log.segments.segments)
    for _ in range(3):
        compact(log)
        fill(log, Random(5), count=10)
    assert len(log.segments.segments) < many / 3
    for segment in log.segments.segments:
        assert segment.size_bytes <= CONFIG.segment_bytes


def test_a_small_key_memory_needs_more_passes_and_ends_the_same(files):
    log = open_log(files)
    fill(log, Random(6))
    expected = table(log)
    passes = 0
    while plan_cleaning(log, NOW_MS) is not None:
        compact(log, key_memory_bytes=800)
        assert table(log) == expected
        passes += 1
    assert 1 < passes < 100
    settled = [record.key for record in records(log) if record.offset < log.segments.active.base_offset]
    assert len(settled) == len(set(settled))


def test_producer_state_outlives_the_records(files):
    log = open_log(files)
    sequenced = {"producer_id": 7, "producer_epoch": 0}
    append(log, (b"key-1", b"a"), base_sequence=0, **sequenced)
    first = append(log, (b"key-1", b"b"), base_sequence=1, **sequenced)
    fill(log, Random(7))
    compact(log)
    assert not any(record.offset == first for record in records(log))
    bare = [read_header(batch) for batch in stored_batches(log, 0, log.end_offset)]
    assert (0, 1) in [(header.record_count, header.base_sequence) for header in bare]
    for name in files.names("/data/table-0"):
        if name.endswith(".snapshot"):
            files.remove(f"/data/table-0/{name}")
    again = open_log(files)
    assert append(again, (b"key-1", b"b"), base_sequence=1, **sequenced) == first


def test_readers_in_the_middle_of_nowhere_find_the_next_record(files):
    log = open_log(files)
    fill(log, Random(8))
    compact(log)
    offsets = [record.offset for record in records(log)]
    for offset in range(log.end_offset):
        (batch, *_) = stored_batches(log, offset, log.end_offset)
        assert read_header(batch).next_offset > offset
        found = [record.offset for record in records_from(log, offset)]
        assert found == [kept for kept in offsets if kept >= offset]


def records_from(log: DiskLog, offset: int) -> list[Record]:
    read: list[Record] = []
    while offset < log.end_offset:
        part = log.read(offset, 10, log.end_offset, at_least_one=True).parts[0]
        assert isinstance(part, bytes)
        read += [record for record in iterate_records(part) if record.offset >= offset]
        offset = read_header(part).next_offset
    return read


def test_the_dirtiest_log_is_cleaned_first_one_at_a_time(files):
    disk = directory(files)
    logs = [disk.open_log(TopicPartition("table", number), ID, CONFIG) for number in range(2)]
    for log in logs:
        fill(log, Random(11))
    compact(logs[0])
    fill(logs[0], Random(12), count=12)
    queue = QueueWorkers()
    busy = Cleaner(queue, throttle=lambda: None)
    busy.consider(logs, NOW_MS)
    busy.consider(logs, NOW_MS)
    assert len(queue.waiting) == 1
    while queue.waiting:
        queue.do_one()
    assert plan_cleaning(logs[1], NOW_MS) is None and plan_cleaning(logs[0], NOW_MS) is not None


def test_no_log_is_checked_during_the_backoff(files):
    log = open_log(files)
    idle = cleaner(backoff_ms=1000)
    idle.consider([log], NOW_MS)
    fill(log, Random(13))
    idle.consider([log], NOW_MS + 999)
    assert read_cleaner_checkpoint(log) == 0
    idle.consider([log], NOW_MS + 1000)
    assert read_cleaner_checkpoint(log) > 0


def test_lag_settings_are_obeyed_after_an_unclean_start(files):
    log = open_log(files)
    fill(log, Random(16))
    overdue = LogConfig(cleanup_compact=True, max_compaction_lag_ms=1000, min_cleanable_dirty_ratio=1.0)
    young = LogConfig(cleanup_compact=True, min_compaction_lag_ms=1000, min_cleanable_dirty_ratio=0.0)
    log.configure(overdue)
    assert plan_cleaning(log, NOW_MS) is None
    plan = plan_cleaning(log, NOW_MS + 1001)
    assert plan is not None and plan.is_overdue
    log.configure(young)
    assert plan_cleaning(log, NOW_MS - 200) is None
    assert plan_cleaning(log, NOW_MS + 1000) is not None
