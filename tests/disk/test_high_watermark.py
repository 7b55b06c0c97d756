"""The high watermark bounds retention and compaction; only the owner of a log advances it."""

import pytest

from runnel.disk.data_directory import DataDirectory
from runnel.disk.disk_log import DiskLog
from runnel.model.errors import ApiError
from runnel.model.log_config import LogConfig
from runnel.ports.disk import Origin
from tests.disk.compacted import compact_uncommitted, table
from tests.disk.world import PARTITION, START_MS, TOPIC_ID, Place, batch, in_loop, read_all

EXPIRED = LogConfig(segment_bytes=500, retention_ms=1000)
COMPACTED = LogConfig(
    segment_bytes=500, cleanup_delete=False, cleanup_compact=True, min_cleanable_dirty_ratio=0.0
)


def written(config: LogConfig, count: int = 20) -> tuple[DataDirectory, DiskLog]:
    """A log that holds batches of which none is committed."""
    directory = Place().open()
    log = directory.open_log(PARTITION, TOPIC_ID, config)
    for _ in range(count):
        log.stage(memoryview(batch(bytes(100))), 0, START_MS, Origin.CLIENT)
        log.write_staged()
    return directory, log


def test_it_starts_where_it_was_stored_and_moves_forward_only() -> None:
    place = Place()
    directory = place.open()
    log = directory.open_log(PARTITION, TOPIC_ID, LogConfig(segment_bytes=500))
    for _ in range(9):
        log.stage(memoryview(batch(bytes(100))), 0, START_MS, Origin.CLIENT)
    log.write_staged()
    assert log.high_watermark == 0
    log.advance_high_watermark(6)
    log.advance_high_watermark(4)
    assert log.high_watermark == 6
    log.advance_high_watermark(100)
    assert log.high_watermark == log.written_offset == 9
    log.delete_records_before(7)
    directory.close()
    log = place.open().open_log(PARTITION, TOPIC_ID, LogConfig(segment_bytes=500))
    assert (log.high_watermark, log.log_start_offset) == (9, 7)
    log.truncate_to(8)
    assert log.high_watermark == 8


@in_loop
async def test_retention_keeps_what_is_not_committed() -> None:
    directory, log = written(EXPIRED)
    late_ms = START_MS + 1_000_000
    directory.upkeep(late_ms)
    assert log.log_start_offset == 0
    log.advance_high_watermark(10)
    directory.upkeep(late_ms)
    assert 0 < log.log_start_offset <= 10
    log.advance_high_watermark(20)
    directory.upkeep(late_ms)
    assert log.log_start_offset == 20


@in_loop
async def test_compaction_keeps_what_is_not_committed() -> None:
    directory, log = written(COMPACTED)
    await directory.sync(log)
    before = read_all(log)
    compact_uncommitted(log)
    assert read_all(log) == before
    log.advance_high_watermark(10)
    compact_uncommitted(log)
    kept = read_all(log)
    assert len(kept) < len(before) and kept[-10:] == before[-10:]
    assert len(table(log)) == 1


def test_records_above_it_are_not_deleted() -> None:
    _, log = written(EXPIRED)
    log.advance_high_watermark(10)
    with pytest.raises(ApiError, match="high watermark 10"):
        log.delete_records_before(11)
    assert log.log_start_offset == 0
    log.delete_records_before(10)
    assert log.log_start_offset == 10
