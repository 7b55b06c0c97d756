"""A broker is measured once it is warm, and it is reported when it never was."""

from collections.abc import Iterator
from itertools import chain, count, repeat

import pytest

from tools.bench.warm_up import is_steady, run_until_steady

KAFKA_AFTER_START = [2_000, 6_000, 10_000, 24_000, 36_000, 46_000, 46_500, 45_900]
"""Small requests a second of Apache Kafka in windows of four seconds."""


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ([], False),
        ([100, 100], False),
        ([100, 100, 100], True),
        ([100, 95, 100], True),
        ([100, 94, 100], False),
        ([10, 100, 97, 98], True),
        ([100, 97, 98, 50], False),
        ([0, 0, 0], True),
    ],
)
def test_three_windows_in_a_row_agree_within_five_percent(figures: list[float], expected: bool) -> None:
    assert is_steady(figures) == expected


def ticking(window_s: float) -> Iterator[float]:
    """A clock that is read once before the first window and once after each."""
    return count(0, window_s)


def test_kafka_is_warmed_until_it_no_longer_gets_faster() -> None:
    rates, clock = iter(KAFKA_AFTER_START), ticking(4.0)
    last, warm_up = run_until_steady(lambda: next(rates), float, 90.0, lambda: next(clock))
    assert last == KAFKA_AFTER_START[-1]
    assert warm_up.figures == KAFKA_AFTER_START
    assert warm_up.is_steady
    assert warm_up.describe() == "steady after 8 windows, 32 s"


def test_what_never_becomes_steady_is_given_up_and_reported() -> None:
    rates, clock = chain.from_iterable(repeat([1.0, 2.0])), ticking(4.0)
    _, warm_up = run_until_steady(lambda: next(rates), float, 20.0, lambda: next(clock))
    assert len(warm_up.figures) == 5
    assert warm_up.describe() == "NOT steady after 5 windows, 20 s"
