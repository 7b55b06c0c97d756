"""Failed authentications of one address are answered ever later, those of others are not."""

from runnel.security.login_failures import (
    ADDRESSES_MAX,
    BURST,
    DELAY_MS_MAX,
    PER_SECOND_MAX,
    LoginFailures,
)


def test_failures_beyond_the_burst_wait_for_their_turn() -> None:
    failures = LoginFailures()
    assert [failures.failed("a", 0) for _ in range(BURST)] == [0] * BURST
    assert [failures.failed("a", 0) for _ in range(3)] == [100, 200, 300]
    assert failures.failed("b", 0) == 0


def test_the_delay_is_limited_and_forgotten() -> None:
    failures = LoginFailures()
    delays = [failures.failed("a", 0) for _ in range(1000)]
    assert max(delays) == DELAY_MS_MAX
    assert failures.failed("a", 2 * DELAY_MS_MAX) == 0


def test_a_steady_rate_below_the_limit_is_not_delayed() -> None:
    failures = LoginFailures()
    assert not any(failures.failed("a", turn * 1000 // PER_SECOND_MAX) for turn in range(1000))


def test_the_number_of_addresses_is_limited() -> None:
    failures = LoginFailures()
    for number in range(ADDRESSES_MAX + 10):
        failures.failed(str(number), 0)
    assert len(failures._turns) == ADDRESSES_MAX
