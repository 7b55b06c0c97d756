"""Growth of topics, past end offsets, and their charts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.model.ids import TopicPartition
from runnel.pipelines.insights.broker_facts import Disks, GroupLag
from runnel.pipelines.insights.job import (
    InsightsOptions,
    TopicFacts,
    _BrokerState,
    end_offsets_over_time,
    growth_of,
    outcome_of,
)
from runnel.pipelines.insights.page import _intervals, _sums, insights_page
from runnel.pipelines.insights.status import disk_status, key_text, unplaced_text
from runnel.pipelines.insights.traffic import EARLIEST_MS, SLACK_MS, ReadWindow, TopicTraffic, step_for
from runnel.pipelines.insights.traffic import _add as add

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
NOW_MS = 1_700_000_000_000 // DAY_MS * DAY_MS


def facts(**changes):
    known = {"topic": "orders", "partitions": 1, "replicas": 1, "size_bytes": 1000, "records": 100}
    return TopicFacts(**{**known, "retention_ms": 7 * DAY_MS, "retention_bytes": -1, **changes})


def traffic(*sums):
    """(moment or None, records, first offset); each record has ten bytes."""
    topic = TopicTraffic("orders")
    for at_ms, records, offset in sums:
        step = None if at_ms is None else at_ms // MINUTE_MS * MINUTE_MS
        add(topic, 0, step, 13, records, 10 * records, 10, at_ms, at_ms, offset, offset + records - 1)
    return topic


def test_a_topic_grows_since_its_first_record():
    growth = growth_of(facts(), traffic((NOW_MS - DAY_MS, 50, 0), (NOW_MS, 50, 50)), NOW_MS, None)
    assert growth.bytes_per_s * 86_400 == pytest.approx(1000)
    assert growth.limit_bytes == pytest.approx(7000)


def test_records_without_a_timestamp_do_not_extend_the_time_span():
    dated = traffic((NOW_MS - DAY_MS, 50, 0), (None, 1, 50), (NOW_MS, 49, 51))
    assert (dated.records, dated.unplaced, dated.first_ms) == (100, 1, NOW_MS - DAY_MS)
    assert growth_of(facts(), dated, NOW_MS, None).bytes_per_s * 86_400 == pytest.approx(1000)
    # Without timestamps there is no rate.
    assert growth_of(facts(), traffic((None, 100, 0)), NOW_MS, None).bytes_per_s == 0


def test_a_burst_in_an_old_topic_is_spread_over_the_time_looked_at():
    since_ms = NOW_MS - DAY_MS
    old = growth_of(facts(), traffic((NOW_MS - HOUR_MS, 100, 5000)), NOW_MS, since_ms)
    new = growth_of(facts(), traffic((NOW_MS - HOUR_MS, 100, 0)), NOW_MS, since_ms)
    assert old.bytes_per_s * 86_400 == pytest.approx(1000)
    assert new.bytes_per_s * 3600 == pytest.approx(1000)


def test_what_is_compacted_grows_by_new_keys_and_no_time_limits_it():
    seen = traffic((NOW_MS - DAY_MS, 50, 0), (NOW_MS, 50, 50))
    seen.keys = 20
    growth = growth_of(facts(is_compacted=True, replicas=3), seen, NOW_MS, None)
    assert growth.limit_bytes is None and growth.is_compacted
    assert growth.bytes_per_s * 86_400 == pytest.approx(20 * 10 * 3)


def test_stamps_that_cannot_be_are_not_placed():
    low_ms, high_ms = ReadWindow("", (), None, NOW_MS).valid_range_ms
    for at_ms in (-1, 0, NOW_MS // 1000, NOW_MS * 1000):
        assert not low_ms <= at_ms <= high_ms
    assert low_ms == EARLIEST_MS and high_ms >= NOW_MS
    assert ReadWindow("", (), NOW_MS - DAY_MS, NOW_MS).valid_range_ms[0] == NOW_MS - DAY_MS - SLACK_MS


def test_a_step_is_as_long_as_the_span_asks_for():
    assert step_for(DAY_MS, 100) == MINUTE_MS
    assert step_for(365 * DAY_MS, 10) == HOUR_MS
    assert step_for(5 * 365 * DAY_MS, 10_000) == DAY_MS


def test_logs_have_come_as_far_as_they_are_by_now():
    seen = traffic((NOW_MS - HOUR_MS, 10, 40), (NOW_MS + 10 * MINUTE_MS, 5, 50), (None, 5, 55))
    lags = [GroupLag("billing", "quiet", 0, 10, 30), GroupLag("billing", "orders", 0, 50, 60)]
    logs = end_offsets_over_time({"orders": seen}, lags, MINUTE_MS, NOW_MS)
    assert logs["quiet", 0].end_at(NOW_MS) == 30
    orders = logs["orders", 0]
    moments = (NOW_MS - 2 * HOUR_MS, NOW_MS - HOUR_MS + MINUTE_MS, NOW_MS + MINUTE_MS)
    assert [orders.end_at(at_ms) for at_ms in moments] == [40, 50, 60]
    assert list(orders.moments_ms) == sorted(orders.moments_ms)


@given(
    st.dictionaries(st.integers(0, 300).map(lambda index: index * 10), st.integers(0, 9), min_size=1),
    st.integers(1, 50),
)
def test_each_point_is_of_as_many_steps_as_the_others(counts, points_max):
    intervals = _intervals(set(counts), 10, points_max)
    assert 1 <= len(intervals) <= points_max
    sums = _sums(intervals, {step: (count, 0) for step, count in counts.items()}, 0)
    for start, total in zip(intervals, sums, strict=True):
        within = range(start, start + intervals.step, 10)
        assert total == sum(counts.get(step, 0) for step in within)
        assert within[-1] <= max(counts)


def outcome(topics, seen, disks):
    state = _BrokerState(topics, disks, [], False)
    return outcome_of(InsightsOptions(bootstrap="here:9092"), NOW_MS, MINUTE_MS, state, seen)


def test_what_was_not_looked_at_is_said():
    seen = {"orders": traffic((NOW_MS - HOUR_MS, 90, 0), (None, 10, 90))}
    sizes = {TopicPartition(name, 0): 1000 for name in ("orders", "__consumer_offsets")}
    found = outcome([facts()], seen, Disks(10**9, 10**8, sizes))
    assert "In topic orders, 10 records have timestamps outside" in unplaced_text(found)
    assert "these topics" not in disk_status(found)[1]
    more = outcome([facts()], seen, Disks(10**9, 10**8, {**sizes, TopicPartition("clicks", 0): 5}))
    assert "these topics" in disk_status(more)[1]
    page = insights_page(more)
    assert page.status.detail.endswith("in 1 topic")


def test_a_full_disk_is_full_now():
    seen = {"orders": traffic((NOW_MS - HOUR_MS, 90, 0))}
    assert disk_status(outcome([facts()], seen, Disks(100, 0, {})))[0] == "now"


def test_keys_are_shown_as_people_can_read_them():
    shown = [key_text(key) for key in (None, b"", b"order-7", b"\x00\x00\x00\x07", b"\xff", b"k" * 50)]
    assert shown == ["none", "empty", "order-7", "00000007", "ff", "k" * 40 + "…"]
