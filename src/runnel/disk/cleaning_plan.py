"""What of a log is due for compaction, and the checkpoint of how far it is clean."""

from runnel.batch.header import HEADER_BYTES, NO_TIMESTAMP
from runnel.disk.atomic import replace_file
from runnel.disk.disk_log import DiskLog
from runnel.disk.producers_on_disk import first_open_offset_at
from runnel.disk.segment import UNKNOWN_TIMESTAMP, Segment
from runnel.disk.walk import walk_headers_of_file
from runnel.log.compaction import CompactionPlan, SegmentFacts, plan_compaction
from runnel.log.names import CLEANER_CHECKPOINT
from runnel.model.log_config import FOREVER


def plan_cleaning(log: DiskLog, now_ms: int) -> CompactionPlan | None:
    """What of this log is due for compaction."""
    if not log.closed_segments():
        return None
    facts, first_dirty_offset = segment_facts(log), read_cleaner_checkpoint(log)
    # What a power cut could take is left uncompacted: recovery expects to find it as it was written.
    stable_offset = min(log.durability.recovery_point, log.high_watermark)
    plan = plan_compaction(facts, first_dirty_offset, stable_offset, log.config, now_ms)
    if plan is None:
        return None
    # The end of a transaction must be durable before any of its records is removed: none is touched that was
    # open at the last end of a segment which a power cut cannot take, even if it has ended since.
    sure_offset = max(fact.end_offset for fact in facts if fact.end_offset <= stable_offset)
    first_open_offset = first_open_offset_at(log.segments, sure_offset)
    if first_open_offset is None or first_open_offset >= plan.end_offset:
        return plan
    return plan_compaction(facts, first_dirty_offset, first_open_offset, log.config, now_ms)


def segment_facts(log: DiskLog) -> list[SegmentFacts]:
    """The closed segments as a plan sees them; timestamps are looked up only if a setting needs them."""
    needs_first = log.config.max_compaction_lag_ms < FOREVER
    needs_max = log.config.compaction_lag_ms > 0
    closed = log.closed_segments()
    ends = [segment.base_offset for segment in [*closed[1:], log.segments.active]]
    return [
        SegmentFacts(
            segment.base_offset,
            end_offset,
            segment.size_bytes,
            _first_timestamp(log, segment) if needs_first else NO_TIMESTAMP,
            log.segments.max_timestamp_of(segment) if needs_max else NO_TIMESTAMP,
        )
        for segment, end_offset in zip(closed, ends, strict=True)
    ]


def _first_timestamp(log: DiskLog, segment: Segment) -> int:
    if segment.first_timestamp == UNKNOWN_TIMESTAMP:
        batches = walk_headers_of_file(log.segment_file(segment), 0, segment.size_bytes, HEADER_BYTES)
        segment.first_timestamp = next((header.max_timestamp for _, header in batches), NO_TIMESTAMP)
    return segment.first_timestamp


def read_cleaner_checkpoint(log: DiskLog) -> int:
    """The first dirty offset of the log; 0 if it is not known, which is always safe to assume."""
    try:
        text = log.segments.files.read(f"{log.segments.folder}/{CLEANER_CHECKPOINT}")
        return int(text) if text.endswith(b"\n") else 0
    except (FileNotFoundError, ValueError):
        return 0


def store_cleaner_checkpoint(log: DiskLog, offset: int) -> None:
    """Store the first dirty offset; truncation removes the file.

    It need not be durable: an older value that reappears after a power cut is valid as well.
    """
    if log.failure is not None:
        # If the log was removed, its folder may be that of another one by now.
        return
    replace_file(log.segments.files, log.segments.folder, CLEANER_CHECKPOINT, b"%d\n" % offset, sync=False)
