"""Decides when a log rolls a new segment."""

from dataclasses import dataclass

from runnel.log.index import TIME_ENTRY_BYTES
from runnel.model.log_config import FOREVER, LogConfig

RELATIVE_OFFSET_MAX = 2**31 - 1
"""Index entries hold offsets relative to the segment's base in four signed bytes."""


@dataclass(slots=True)
class RollLimits:
    """The limits of a segment, computed once per segment; a batch beyond them rolls a new one."""

    size_bytes: int
    timestamp_ms: int
    last_offset: int


def limits_of_empty(base_offset: int) -> RollLimits:
    """The limits of an empty segment: only its relative offsets."""
    return RollLimits(FOREVER, FOREVER, base_offset + RELATIVE_OFFSET_MAX)


def limits_of(config: LogConfig, base_offset: int, first_timestamp: int, created_ms: int = -1) -> RollLimits:
    """The limits of a segment, whose age counts from its first batch's timestamp.

    Without a timestamp it counts from `created_ms`, if that is known.
    """
    begun_ms = first_timestamp if first_timestamp >= 0 else created_ms
    age_max_ms = config.segment_ms - jitter_ms(config, base_offset)
    if config.cleanup_compact:
        # Only closed segments are compacted, so the lag bounds the age of the active one.
        age_max_ms = min(age_max_ms, config.max_compaction_lag_ms)
    return RollLimits(
        config.segment_bytes,
        begun_ms + age_max_ms if begun_ms >= 0 else FOREVER,
        base_offset + RELATIVE_OFFSET_MAX,
    )


FULL = RollLimits(-1, -1, -1)
"""Limits that every batch exceeds."""


def index_entries_max(config: LogConfig) -> int:
    """The maximum number of index entries, given by the time index, whose entries are larger."""
    return config.segment_index_bytes // TIME_ENTRY_BYTES - 1


def jitter_ms(config: LogConfig, base_offset: int) -> int:
    """How much earlier than `segment.ms` this segment rolls, so that many logs do not roll together.

    It hangs on the offset instead of on chance: a restart does not move it, and a simulation can repeat it.
    """
    bound = min(config.segment_jitter_ms, config.segment_ms)
    return (base_offset * 0x9E3779B97F4A7C15 >> 7) % bound if bound > 0 else 0
