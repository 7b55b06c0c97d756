"""Rate limiter."""

from math import inf

from hypothesis import given
from hypothesis import strategies as some

from runnel.net.pace import Pace


@given(some.integers(1, 50), some.lists(some.floats(0, 3), max_size=100))
def test_rate_is_never_exceeded_beyond_the_burst(per_second: int, pauses: list[float]) -> None:
    pace, now, taken = Pace(per_second, 0.0), 0.0, 0
    for pause in pauses:
        now += pause
        while not pace.wait_seconds(now):
            pace.take()
            taken += 1
        assert taken <= per_second + now * per_second + 0.001
        assert 0 < pace.wait_seconds(now) <= 1 / per_second


def test_permitted_after_the_returned_delay() -> None:
    pace, now = Pace(4, 10.0), 10.0
    for number in range(20):
        wait_seconds = pace.wait_seconds(now)
        assert wait_seconds == (0 if number < 4 else 0.25)
        now += wait_seconds
        assert pace.wait_seconds(now) == 0
        pace.take()


def test_rate_zero_never_permits() -> None:
    assert Pace(0, 0.0).wait_seconds(10**9) == inf
