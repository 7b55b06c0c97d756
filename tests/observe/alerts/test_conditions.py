"""The arithmetic of conditions, by the definitions of PromQL."""

from math import inf
from statistics import linear_regression, quantiles

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.observe.alerts.conditions import forecast, histogram_quantile, interpolated

values = st.floats(-1e6, 1e6)


@given(st.lists(values, min_size=2, max_size=30))
def test_quantile_of_values(given_values):
    expected = quantiles(given_values, n=100, method="inclusive")[98]
    assert interpolated(sorted(given_values), 0.99) == pytest.approx(expected, abs=1e-6)


@given(st.lists(values, min_size=2, max_size=30), st.integers(0, 100_000))
def test_forecast(given_values, ahead_s):
    points = [(number * 15_000, value) for number, value in enumerate(given_values)]
    xs = [at_ms / 1000 for at_ms, _ in points]
    line = linear_regression(xs, given_values)
    expected = line.slope * (xs[-1] + ahead_s) + line.intercept
    assert forecast(points, ahead_s) == pytest.approx(expected, rel=1e-6, abs=1e-3)


def test_forecast_of_one_moment():
    assert forecast([(0, 5.0)], 100) == 5.0


@pytest.mark.parametrize(
    ("buckets", "share", "expected"),
    [
        # Half of the second bucket.
        ([(1.0, 10), (2.0, 20), (inf, 20)], 0.75, 1.5),
        ([(1.0, 10), (2.0, 10), (inf, 10)], 0.5, 0.5),
        # In the bucket without a bound: the last bound.
        ([(1.0, 10), (2.0, 10), (inf, 100)], 0.99, 2.0),
        ([(1.0, 0), (inf, 0)], 0.99, 0.0),
    ],
)
def test_quantile_of_a_histogram(buckets, share, expected):
    assert histogram_quantile(buckets, share) == expected
