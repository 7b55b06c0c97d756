"""Rate limiter."""

from math import inf

from hypothesis import given
from hypothesis import strategies as some

from runnel.net.rate_limit import TokenBucket


@given(some.integers(1, 50), some.lists(some.floats(0, 3), max_size=100))
def test_rate_is_never_exceeded_beyond_the_burst(per_second: int, pauses: list[float]) -> None:
    bucket, now, taken = TokenBucket(per_second, 0.0), 0.0, 0
    for pause in pauses:
        now += pause
        while not bucket.wait_seconds(now):
            bucket.take()
            taken += 1
        assert taken <= per_second + now * per_second + 0.001
        assert 0 < bucket.wait_seconds(now) <= 1 / per_second


def test_permitted_after_the_returned_delay() -> None:
    bucket, now = TokenBucket(4, 10.0), 10.0
    for number in range(20):
        wait_seconds = bucket.wait_seconds(now)
        assert wait_seconds == (0 if number < 4 else 0.25)
        now += wait_seconds
        assert bucket.wait_seconds(now) == 0
        bucket.take()


def test_rate_zero_never_permits() -> None:
    assert TokenBucket(0, 0.0).wait_seconds(10**9) == inf
