"""Retention and rolling plans against their definitions."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from runnel.log.retention import SegmentAge, segments_to_drop
from runnel.log.rolling import (
    RELATIVE_OFFSET_MAX,
    index_entries_max,
    jitter_ms,
    limits_of,
    limits_of_empty,
)
from runnel.model.log_config import FOREVER, LogConfig

NOW_MS = 10_000
shapes = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 12_000)), max_size=8)


def ages(found: list[tuple[int, int]]) -> list[SegmentAge]:
    return [
        SegmentAge((number + 1) * 10, size_bytes, max_timestamp_ms)
        for number, (size_bytes, max_timestamp_ms) in enumerate(found)
    ]


@given(shapes, st.integers(-1, 10_000), st.integers(-1, 1500), st.integers(0, 80))
def test_retention_deletes_exactly_what_is_due_and_allowed(
    found, retention_ms, retention_bytes, committed
) -> None:
    segments = ages(found)
    config = LogConfig(retention_ms=retention_ms, retention_bytes=retention_bytes)
    count = segments_to_drop(segments, config, NOW_MS, committed)

    def may_go(number: int) -> bool:
        segment = segments[number]
        is_old = retention_ms >= 0 and all(
            one.size_bytes and NOW_MS - one.max_timestamp_ms > retention_ms for one in segments[: number + 1]
        )
        rest_bytes = sum(one.size_bytes for one in segments[number + 1 :])
        is_much = (
            retention_bytes >= 0
            and rest_bytes >= retention_bytes
            and all(one.size_bytes for one in segments[: number + 1])
        )
        return segment.next_offset <= committed and (is_old or is_much)

    assert all(may_go(number) for number in range(count))
    assert count == len(segments) or not may_go(count)


def test_a_log_that_is_only_compacted_keeps_everything() -> None:
    config = LogConfig(retention_ms=0, retention_bytes=0, cleanup_delete=False, cleanup_compact=True)
    assert segments_to_drop(ages([(100, 0)] * 3), config, NOW_MS, 100) == 0


def test_the_size_left_is_never_below_what_may_be_kept() -> None:
    config = LogConfig(retention_ms=-1, retention_bytes=250)
    assert segments_to_drop(ages([(100, 0)] * 4), config, NOW_MS, 100) == 1


def test_a_segment_takes_batches_up_to_its_size_and_age() -> None:
    limits = limits_of(LogConfig(segment_bytes=5000, segment_ms=100), 50, 7000, -1)
    assert (limits.size_bytes, limits.timestamp_ms) == (5000, 7100)
    assert limits.last_offset == 50 + RELATIVE_OFFSET_MAX


def test_without_timestamps_the_brokers_clock_counts() -> None:
    assert limits_of(LogConfig(segment_ms=100), 0, -1, 3000).timestamp_ms == 3100
    assert limits_of(LogConfig(segment_ms=100), 0, -1, -1).timestamp_ms == FOREVER


def test_the_compaction_lag_bounds_the_age() -> None:
    config = LogConfig(segment_ms=1000, max_compaction_lag_ms=10)
    assert limits_of(config, 0, 5, -1).timestamp_ms == 1005
    assert limits_of(replace(config, cleanup_compact=True), 0, 5, -1).timestamp_ms == 15


def test_an_empty_segment_takes_anything() -> None:
    assert limits_of_empty(9).size_bytes == FOREVER
    assert limits_of_empty(9).last_offset == 9 + RELATIVE_OFFSET_MAX


@given(st.integers(0, 2**62), st.integers(0, 1000), st.integers(1, 2000))
def test_jitter_stays_within_its_bound(base_offset: int, segment_jitter_ms: int, segment_ms: int) -> None:
    config = LogConfig(segment_ms=segment_ms, segment_jitter_ms=segment_jitter_ms)
    found = jitter_ms(config, base_offset)
    assert found == jitter_ms(config, base_offset)
    assert 0 <= found <= max(min(segment_jitter_ms, segment_ms) - 1, 0)


def test_jitter_spreads() -> None:
    config = LogConfig(segment_jitter_ms=1000)
    assert len({jitter_ms(config, base_offset) for base_offset in range(100)}) > 50


def test_the_time_index_is_full_first() -> None:
    assert index_entries_max(LogConfig(segment_index_bytes=120)) == 9
