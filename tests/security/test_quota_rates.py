"""Rates and token buckets: figures of Kafka's arithmetic, and the same as its samples taken literally."""

from dataclasses import dataclass, field
from heapq import heapify, heapreplace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.security.quotas.rates import THROTTLE_MS_MAX, SampledRate, TokenBucket, Windows

KAFKA = Windows()
START_MS = 1_000_000


def rate_after(*events: tuple[int, float], windows: Windows = KAFKA) -> SampledRate:
    """A rate with values at some milliseconds after the start."""
    rate = SampledRate(windows, START_MS)
    for at_ms, value in events:
        rate.record(value, START_MS + at_ms)
    return rate


@pytest.mark.parametrize(
    ("events", "at_ms", "per_second", "measured_ms"),
    [
        # Only one window has begun: the others are assumed to be empty.
        ([(0, 5000)], 0, 500, 10_000),
        ([(0, 5000)], 250, 5000 / 10.25, 10_250),
        # Half of the 11th window.
        ([(second * 1000, 100) for second in range(11)], 10_500, 1100 / 10.5, 10_500),
        # Idle after one burst: counted until the time of all windows is over.
        ([(0, 5000)], 10_999, 5000 / 10.999, 10_999),
        ([(0, 5000)], 11_000, 0, 10_000),
        # A sample that overlaps the measured time is kept as a whole.
        ([(0, 1000), (900, 1000), (5000, 1000)], 11_500, 3000 / 11.5, 11_500),
        # Taken back.
        ([(0, 5000), (10, -5000)], 10, 0, 10_010),
    ],
)
def test_rates_are_those_of_kafka(events, at_ms, per_second, measured_ms):
    assert rate_after(*events).measure(START_MS + at_ms) == pytest.approx((per_second, measured_ms))


@pytest.mark.parametrize(
    ("used", "limit", "throttle_ms"),
    [
        (10_000, 1000, 0),  # what 10 seconds allow
        (10_001, 1000, 1),  # a byte more: 1 ms of it
        (11_000, 1000, 1000),
        (20_000, 1000, 10_000),
        (1_000_000, 1000, 990_000),  # not bounded
        (2**40, 1, THROTTLE_MS_MAX),  # what a response can state
    ],
)
def test_a_client_pauses_until_the_rate_is_the_limit(used, limit, throttle_ms):
    rate = rate_after((0, used))
    assert rate.throttle_ms(limit, START_MS) == throttle_ms


def test_a_client_that_obeys_is_at_its_limit():
    rate, now_ms, sent = SampledRate(KAFKA, START_MS), START_MS, 0
    end_ms = START_MS + 60_000
    while now_ms < end_ms:
        rate.record(3_000, now_ms)
        sent += 3_000
        now_ms += rate.throttle_ms(10_000, now_ms)
    # A burst of ten seconds at first.
    assert sent == pytest.approx(700_000, rel=0.05)


@pytest.mark.parametrize("windows", [Windows(2, 1), Windows(3, 1), KAFKA])
@pytest.mark.parametrize("limit", [5, 20])
def test_connections_that_come_again_have_their_rate(windows: Windows, limit: int):
    """Clients whose connections above the rate are held, closed and opened again."""
    rate, accepted = SampledRate(windows, START_MS), 0
    end_ms = START_MS + 200_000
    clients = [(START_MS + index * 10, index) for index in range(4 * limit)]
    heapify(clients)
    while clients[0][0] < end_ms:
        now_ms, index = clients[0]
        rate.record(1, now_ms)
        hold_ms = min(rate.throttle_ms(limit, now_ms), 1000)
        if hold_ms:
            rate.record(-1, now_ms)
        else:
            accepted += 1
        heapreplace(clients, (now_ms + hold_ms + 50 + index % 7 * 20, index))
    assert accepted / 200 == pytest.approx(limit, rel=0.1)


@pytest.mark.parametrize("windows", [Windows(3, 1), KAFKA])
@pytest.mark.parametrize("turn_ms", [1, 10, 20])
def test_time_that_is_charged_after_its_turn_is_at_its_limit(windows: Windows, turn_ms: int):
    rate, now_ms, used_ms = SampledRate(windows, START_MS), START_MS, 0
    while now_ms < START_MS + 200_000:
        # The throttle time is known before what the turn itself takes, and is a window at most.
        throttle_ms = min(rate.throttle_ms(10, now_ms), 1000)
        now_ms += turn_ms
        used_ms += turn_ms
        rate.record(turn_ms / 1000 * 100, now_ms)
        now_ms += throttle_ms
    assert used_ms / 200_000 == pytest.approx(0.1, rel=0.1)


@dataclass
class Sample:
    start_ms: int
    last_ms: int
    value: float = 0.0


@dataclass
class Literal:
    """Kafka's samples in the words of its documentation: a ring of one more than is counted."""

    windows: Windows
    samples: list[Sample] = field(default_factory=list)
    current: int = 0

    def record(self, value: float, now_ms: int) -> None:
        if not self.samples:
            self.samples.append(Sample(now_ms, now_ms))
        if now_ms - self.samples[self.current].start_ms >= self.windows.seconds * 1000:
            self.current = (self.current + 1) % (self.windows.count + 1)
            if self.current == len(self.samples):
                self.samples.append(Sample(now_ms, now_ms))
            self.samples[self.current] = Sample(now_ms, now_ms)
        self.samples[self.current].value += value
        self.samples[self.current].last_ms = now_ms

    def measure(self, now_ms: int) -> tuple[float, int]:
        age_ms = self.windows.count * self.windows.seconds * 1000
        for index, sample in enumerate(self.samples):
            if now_ms - sample.last_ms >= age_ms:
                self.samples[index] = Sample(now_ms, now_ms)
        oldest_ms = min((sample.start_ms for sample in self.samples), default=now_ms)
        elapsed_ms = now_ms - oldest_ms
        full_windows = elapsed_ms // (self.windows.seconds * 1000)
        if full_windows < self.windows.count - 1:
            elapsed_ms += (self.windows.count - 1 - full_windows) * self.windows.seconds * 1000
        elapsed_ms = max(elapsed_ms, 1)
        return sum(sample.value for sample in self.samples) / (elapsed_ms / 1000), elapsed_ms


STEPS = st.lists(
    st.tuples(st.integers(0, 4_000) | st.integers(0, 40_000), st.integers(-500, 100_000), st.booleans()),
    max_size=60,
)


@given(STEPS, st.integers(1, 12), st.integers(1, 3))
def test_rates_are_those_of_literal_samples(steps, count, seconds):
    windows = Windows(count, seconds)
    rate, literal, now_ms = SampledRate(windows, START_MS), Literal(windows), START_MS
    literal.record(0, START_MS)
    for passed_ms, value, is_measured in steps:
        now_ms += passed_ms
        rate.record(value, now_ms)
        literal.record(value, now_ms)
        if is_measured:
            assert rate.measure(now_ms) == pytest.approx(literal.measure(now_ms))


@given(STEPS)
def test_a_forgotten_rate_is_as_a_new_one(steps):
    rate, now_ms = SampledRate(KAFKA, START_MS), START_MS
    for passed_ms, value, _ in steps:
        now_ms += passed_ms
        rate.record(value, now_ms)
    assert not rate.is_forgotten(now_ms + KAFKA.memory_ms - 1)
    now_ms += KAFKA.memory_ms
    assert rate.is_forgotten(now_ms)
    assert rate.measure(now_ms) == SampledRate(KAFKA, now_ms).measure(now_ms)


def test_tokens_are_those_of_kafka():
    bucket = TokenBucket(KAFKA, 2, START_MS)
    assert bucket.tokens(2, START_MS) == 22
    bucket.take(30, 2, START_MS)
    assert bucket.throttle_ms(2, START_MS) == 4000
    assert bucket.tokens(2, START_MS + 1000) == -6
    assert bucket.throttle_ms(2, START_MS + 3999) == 1
    assert bucket.throttle_ms(2, START_MS + 4000) == 0
    assert bucket.tokens(2, START_MS + 1_000_000) == 22


def test_a_changed_limit_keeps_the_tokens():
    bucket = TokenBucket(KAFKA, 1, START_MS)
    bucket.take(11, 1, START_MS)
    assert bucket.tokens(10, START_MS + 1000) == 10
    assert bucket.tokens(0.5, START_MS + 1000) == 5.5


@given(st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 40)), max_size=40), st.integers(1, 20))
def test_what_is_taken_is_what_was_saved_and_earned(steps, limit):
    """Every take is permitted while there are tokens, so that the excess is at most one take."""
    bucket, now_ms = TokenBucket(KAFKA, limit, START_MS), START_MS
    taken = 0
    for passed_ms, count in steps:
        now_ms += passed_ms
        if bucket.throttle_ms(limit, now_ms) == 0:
            bucket.take(count, limit, now_ms)
            taken += count
    assert taken <= limit * (11 + (now_ms - START_MS) / 1000) + 41
