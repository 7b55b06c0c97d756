"""Retention: the old segments that a log may delete."""

from collections.abc import Sequence
from dataclasses import dataclass

from runnel.model.log_config import LogConfig


@dataclass(slots=True)
class SegmentAge:
    """The facts about one segment for retention."""

    next_offset: int
    size_bytes: int
    max_timestamp_ms: int


def segments_to_drop(
    segments: Sequence[SegmentAge], config: LogConfig, now_ms: int, committed_offset: int
) -> int:
    """The number of the oldest segments to delete, by age or by the size of the log.

    All of them may go, the one being written included; the log then begins a new one first. Nothing goes that
    is not committed, since a follower may still need it.
    """
    if not config.cleanup_delete:
        return 0
    return max(
        _too_old(segments, config, now_ms, committed_offset), _too_many(segments, config, committed_offset)
    )


def _too_old(segments: Sequence[SegmentAge], config: LogConfig, now_ms: int, committed_offset: int) -> int:
    if config.retention_ms < 0:
        return 0
    count = 0
    for segment in segments:
        is_old = segment.size_bytes > 0 and now_ms - segment.max_timestamp_ms > config.retention_ms
        if not is_old or segment.next_offset > committed_offset:
            break
        count += 1
    return count


def _too_many(segments: Sequence[SegmentAge], config: LogConfig, committed_offset: int) -> int:
    if config.retention_bytes < 0:
        return 0
    excess_bytes = sum(segment.size_bytes for segment in segments) - config.retention_bytes
    count = 0
    for segment in segments:
        excess_bytes -= segment.size_bytes
        if excess_bytes < 0 or segment.size_bytes == 0 or segment.next_offset > committed_offset:
            break
        count += 1
    return count
