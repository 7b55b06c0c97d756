"""The forecast compared with a model that simulates day by day."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.pipelines.insights.forecast import HORIZON_MS, Growth, forecast, limit_of

GIB = 2**30
DAY_S = 86_400


def test_one_topic_without_retention_fills_the_disk_at_its_rate():
    ahead = forecast([Growth("orders", 10 * GIB, GIB / DAY_S, None)], 40 * GIB, 100 * GIB)
    assert ahead.full_after_ms == pytest.approx(60 * DAY_S * 1000)
    assert ahead.bytes_per_day == pytest.approx(GIB)


def test_retention_holds_growth_back():
    growth = Growth("orders", 10 * GIB, GIB / DAY_S, 15 * GIB)
    ahead = forecast([growth], 40 * GIB, 100 * GIB)
    assert ahead.full_after_ms is None
    assert ahead.points[-1][1] == pytest.approx(45 * GIB)


def test_a_topic_above_its_limit_grows_no_more():
    ahead = forecast([Growth("orders", 20 * GIB, GIB / DAY_S, 15 * GIB)], 40 * GIB, 100 * GIB)
    assert ahead.full_after_ms is None and ahead.bytes_per_day == 0


def test_a_full_disk_is_full_now():
    assert forecast([], 100, 100).full_after_ms == 0


def test_limits_of_retention():
    assert limit_of(100.0, 1, 1, 10_000, -1) == 1000
    assert limit_of(100.0, 2, 3, -1, 500) == 3000
    assert limit_of(100.0, 2, 3, 10_000, 500) == 1000
    assert limit_of(100.0, 2, 3, -1, -1) is None


topics = st.builds(
    lambda size, rate, room: Growth("t", size, rate, None if room is None else size + room),
    st.integers(0, 1000).map(float),
    st.integers(0, 50).map(float),
    st.none() | st.integers(-100, 1000),
)


@given(st.lists(topics, max_size=5), st.integers(0, 500), st.integers(1, 3000))
def test_the_disk_is_full_when_the_twin_says_so(growths, used, room):
    total = used + room
    ahead = forecast(growths, float(used), float(total))
    now = sum(growth.size_at(0) for growth in growths)

    def used_at(second):
        return used + sum(growth.size_at(second) for growth in growths) - now

    if ahead.full_after_ms is None:
        assert used_at(HORIZON_MS / 1000) < total
    else:
        second = ahead.full_after_ms / 1000
        assert used_at(second + 0.01) >= total - 1e-6
        assert used_at(max(0, second - 0.01)) <= total + 1e-6
