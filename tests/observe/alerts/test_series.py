"""What is kept of scrapes, compared with all that was ever scraped."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.observe.alerts.series import FINE_MS, SERIES_MAX, STEP_MS, BrokerState, History, Need, Snapshot

MINUTE_MS = 60_000
START_MS = 1_800_000_000_000
COUNTER = Need("x", is_counter=True, per_broker=False, window_ms=10 * MINUTE_MS, is_stored=True)
EACH = Need("x", is_counter=True, window_ms=10 * MINUTE_MS)
GAUGE = Need("g", ("topic",), per_broker=False, combine="sum")


def scraped(at_ms: int, values: dict[int, float | None], name: str = "x") -> Snapshot:
    return Snapshot(
        at_ms,
        tuple(
            BrokerState(node, None if value is None else {name: [((), value)]})
            for node, value in values.items()
        ),
    )


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("count", "count", "restart", "lose", "continue")),
            st.integers(1, 2),
            st.integers(0, 50),
        ),
        min_size=2,
        max_size=60,
    ),
    st.integers(1, 10),
)
def test_an_increase_is_what_was_counted_within_the_window(actions, window):
    """Brokers restart, are lost for some time, and the evaluator continues from its records."""
    history = History((COUNTER,))
    totals = [(START_MS, 0.0)]
    counts, last = {1: 0.0, 2: 0.0}, {1: 0.0, 2: 0.0}
    total = 0.0
    history.add(scraped(START_MS, dict(counts)))
    for number, (verb, node, count) in enumerate(actions, 1):
        now_ms = START_MS + number * STEP_MS
        values: dict[int, float | None] = dict(counts)
        if verb == "restart":
            counts[node] = 0.0
        if verb == "continue":
            records = history.records()
            history = History((COUNTER,))
            history.restore(records)
            assert history.records() == records
        counts[node] += count
        values = {**counts, **({node: None} if verb == "lose" else {})}
        for each, value in values.items():
            if value is not None:
                total += value - last[each] if value >= last[each] else value
                last[each] = value
        history.add(scraped(now_ms, values))
        totals.append((now_ms, total))
        window_ms = window * MINUTE_MS
        before = [value for at_ms, value in totals if at_ms <= now_ms - window_ms]
        expected = total - (before[-1] if before else 0.0)
        assert history.increase(COUNTER, (), window_ms) == pytest.approx(expected)


def test_old_points_are_kept_every_five_minutes():
    need = Need("x", window_ms=3_600_000)
    history = History((need,))
    for number in range(4 * 120):
        history.add(scraped(START_MS + number * 15_000, {1: float(number)}))
    [points] = history.series[need].values()
    recent = [at_ms for at_ms in points.times if at_ms > history.at_ms - FINE_MS]
    assert len(recent) == FINE_MS // 15_000
    assert len(points.times) - len(recent) <= (3_600_000 - FINE_MS) // STEP_MS + 2
    assert points.times[0] <= history.at_ms - 3_600_000


def test_a_counter_that_appears_later_began_at_zero():
    history = History((EACH,))
    history.add(Snapshot(START_MS, (BrokerState(1, {}),)))
    history.add(scraped(START_MS + 1, {1: 3.0}))
    history.add(scraped(START_MS + 2, {1: 4.0}))
    assert history.increase(EACH, (("broker", "1"),), MINUTE_MS) == 4.0


def test_a_sum_over_brokers_needs_all_of_them():
    history = History((GAUGE,))
    labels = (("topic", "t"),)
    both = tuple(BrokerState(node, {"g": [(labels, 1.0)]}) for node in (1, 2))
    history.add(Snapshot(START_MS, both))
    assert history.value(GAUGE, labels) == 2.0
    history.add(Snapshot(START_MS + 1, (both[0], BrokerState(2, None))))
    assert history.value(GAUGE, labels) is None
    # One without an admin listener may have a part, too.
    history.add(Snapshot(START_MS + 2, (both[0], BrokerState(2, None, is_scraped=False))))
    assert history.value(GAUGE, labels) is None


def test_the_number_of_series_is_limited():
    need = Need("g", None)
    history = History((need,))
    many = [((("topic", str(number)),), 1.0) for number in range(SERIES_MAX + 10)]
    history.add(Snapshot(START_MS, (BrokerState(1, {"g": many}),)))
    assert len(history.series[need]) == SERIES_MAX


def test_series_and_brokers_that_are_gone_are_forgotten():
    history = History((EACH,))
    history.add(scraped(START_MS, {1: 1.0}))
    history.add(scraped(START_MS + 2 * FINE_MS, {2: 1.0}))
    assert [labels for labels in history.series[EACH]] == [(("broker", "2"),)]
    assert [node for _, node in history._counters] == [2]
