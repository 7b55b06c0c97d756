"""Retention carried out: drop the segments that the plan names."""

from runnel.disk.disk_log import DiskLog
from runnel.disk.dropping import drop_oldest
from runnel.log.names import LOG
from runnel.log.retention import SegmentAge, segments_to_drop


def apply_retention(log: DiskLog, now_ms: int) -> bool:
    """Drop what is too old or too much; False if some of it must be sealed first."""
    if not log.config.cleanup_delete or log.size_bytes == 0:
        return True
    ages = [_age_of(log, number) for number in range(len(log.segments.segments))]
    count = segments_to_drop(ages, log.config, now_ms, log.high_watermark)
    if count == 0:
        return True
    if count == len(ages):
        end_offset = log.written_offset
        log.settle()
        if log.written_offset > end_offset:
            # The active segment has grown by records that are not old.
            return False
        log.roll_now()
    return drop_oldest(log, count) == count


def _age_of(log: DiskLog, number: int) -> SegmentAge:
    segment = log.segments.segments[number]
    max_timestamp_ms = -1
    if log.config.retention_ms >= 0 and segment.size_bytes > 0:
        max_timestamp_ms = log.segments.max_timestamp_of(segment)
        if max_timestamp_ms < 0:
            # Records without timestamps: the file's own age must do.
            max_timestamp_ms = log.segments.files.modified_ms(log.segments.path(segment, LOG))
    return SegmentAge(segment.next_offset, segment.size_bytes, max_timestamp_ms)
