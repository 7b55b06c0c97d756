"""Counters: sums never decrease, and a histogram of records is that of the batches."""

from hypothesis import given
from hypothesis import strategies as st

from runnel.batch.build import build_batch
from runnel.batch.records import Record
from runnel.observe.counters import DELIVERY_MS_MAX, EventCounts, RequestCounts, TopicTraffic, Traffic


def total_of(traffic: Traffic) -> TopicTraffic:
    return [step for step in traffic.total() if step is not None][-1]


def test_the_sum_keeps_what_deleted_topics_had() -> None:
    traffic = Traffic()
    traffic.of("a").records_in += 5
    traffic.of("b").records_in += 7
    traffic.unknown().failed_produces += 2
    assert total_of(traffic).records_in == 12
    traffic.forget("a")
    traffic.forget("never")
    traffic.of("a").records_in += 1
    assert total_of(traffic).records_in == 13
    assert total_of(traffic).produces == 2
    assert [(name, counts.records_in) for name, counts in traffic.topics()] == [("a", 1), ("b", 7)]


@given(st.lists(st.integers(1, 100_000), max_size=50))
def test_batches_are_counted_by_their_records(sizes: list[int]) -> None:
    traffic = TopicTraffic()
    for records in sizes:
        traffic.records_in += records
        traffic.batches[(records - 1).bit_length()] += 1
    shown = traffic.batch_records()
    assert shown.sum == sum(sizes)
    below = 0
    for bound, count in zip(shown.bounds, shown.counts, strict=False):
        below += count
        assert below == sum(records <= bound for records in sizes)
    assert sum(shown.counts) == traffic.produces == len(sizes)


def test_requests_of_unknown_apis_do_not_add_series() -> None:
    counts = RequestCounts([0, 1], lambda: 12.5)
    for api_key in range(-5, 1_000):
        counts.account(None, api_key, 0, 2, 10, 10, 12.0)
    assert set(counts.by_api) == {0, 1, -1}
    assert counts.by_api[0].total == 2
    assert counts.by_api[-1].total == 2 * 1_003
    assert counts.by_api[0].seconds == 1.0


def test_the_age_of_a_delivered_record_counts_unless_it_is_old() -> None:
    now_ms = 1_700_000_000_000
    events = EventCounts()
    for age_ms in (0, 40, DELIVERY_MS_MAX, DELIVERY_MS_MAX + 1, -1):
        events.delivered(bytes(build_batch([Record(0, now_ms - age_ms, None, b"value")])), now_ms)
    assert events.end_to_end.total == 3
    assert events.end_to_end.seconds == (0 + 40 + DELIVERY_MS_MAX) / 1000


def test_an_isr_that_loses_and_wins_members_is_both() -> None:
    events = EventCounts()
    events.isr_changed(frozenset({1, 2}), frozenset({1, 2}))
    assert (events.isr_expands, events.isr_shrinks) == (0, 0)
    events.isr_changed(frozenset({1, 2}), frozenset({1}))
    events.isr_changed(frozenset({1}), frozenset({1, 3}))
    events.isr_changed(frozenset({1, 3}), frozenset({1, 2}))
    assert (events.isr_expands, events.isr_shrinks) == (2, 2)
