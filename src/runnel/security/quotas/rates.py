"""Recent usage, and the resulting throttle time of a client: Kafka's arithmetic.

SampledRate   bytes, time and connections: the sum of samples over the time since the oldest of them
TokenBucket   changes of metadata: tokens are earned at the rate of the quota, and may be overdrawn

A rate is measured over at least all windows but one, and the elapsed part of the last: with 11 windows of a
second, a client that was idle may use what 10 seconds allow at once.
"""

from dataclasses import dataclass
from math import floor

THROTTLE_MS_MAX = 2**31 - 1
"""The longest time that a response can state: 24 days."""


@dataclass(frozen=True, slots=True)
class Windows:
    """The samples of a rate: `quota.window.num` and `quota.window.size.seconds`."""

    count: int = 11
    seconds: int = 1

    @property
    def burst_seconds(self) -> int:
        """For how long an idle client may have saved."""
        return (self.count - 1) * self.seconds

    @property
    def memory_ms(self) -> int:
        """After this time without use, nothing is remembered."""
        return self.count * self.seconds * 1000


class SampledRate:
    """The rate of values per second over the last windows.

    A window ends with the first value after its time, and one more is kept than counted: what overlaps the
    measured time is part of it.
    """

    __slots__ = ("_current", "_lasts", "_starts", "_sums", "_windows")

    def __init__(self, windows: Windows, now_ms: int) -> None:
        self._windows = windows
        self._starts = [now_ms]
        self._lasts = [now_ms]
        self._sums = [0.0]
        self._current = 0

    def record(self, value: float, now_ms: int) -> None:
        """Something was used, or if negative, was not used after all."""
        index = self._current
        if now_ms - self._starts[index] >= self._windows.seconds * 1000:
            index = self._advance(now_ms)
        self._sums[index] += value
        self._lasts[index] = now_ms

    def measure(self, now_ms: int) -> tuple[float, int]:
        """(what was used per second, the time in milliseconds over which that was measured)."""
        self._expire(now_ms)
        windows = self._windows
        window_ms = windows.seconds * 1000
        measured_ms = now_ms - min(self._starts)
        missing = windows.count - 1 - measured_ms // window_ms
        if missing > 0:
            measured_ms += missing * window_ms
        measured_ms = max(measured_ms, 1)
        return sum(self._sums) * 1000 / measured_ms, measured_ms

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long to use nothing, so that the rate falls to the limit; 0 if it is not above it."""
        rate, measured_ms = self.measure(now_ms)
        if rate <= limit:
            return 0
        return _rounded((rate - limit) / limit * measured_ms)

    def is_forgotten(self, now_ms: int) -> bool:
        """Is it the same as a new one?"""
        return now_ms - max(self._lasts) >= self._windows.memory_ms

    def _advance(self, now_ms: int) -> int:
        index = self._current = (self._current + 1) % (self._windows.count + 1)
        if index == len(self._starts):
            self._starts.append(now_ms)
            self._lasts.append(now_ms)
            self._sums.append(0.0)
        else:
            self._restart(index, now_ms)
        return index

    def _expire(self, now_ms: int) -> None:
        expired_ms = now_ms - self._windows.memory_ms
        if min(self._lasts) <= expired_ms:
            for index, last_ms in enumerate(self._lasts):
                if last_ms <= expired_ms:
                    self._restart(index, now_ms)

    def _restart(self, index: int, now_ms: int) -> None:
        self._starts[index] = self._lasts[index] = now_ms
        self._sums[index] = 0.0


class TokenBucket:
    """Tokens that are earned at a limit per second, up to what all windows allow; full at first."""

    __slots__ = ("_now_ms", "_tokens", "_windows")

    def __init__(self, windows: Windows, limit: float, now_ms: int) -> None:
        self._windows = windows
        self._tokens = self._burst(limit)
        self._now_ms = now_ms

    def tokens(self, limit: float, now_ms: int) -> float:
        """How many there are; negative after more was taken than there was."""
        earned = limit * (now_ms - self._now_ms) / 1000
        self._now_ms = now_ms
        self._tokens = min(self._burst(limit), self._tokens + earned)
        return self._tokens

    def take(self, count: float, limit: float, now_ms: int) -> None:
        """Take tokens, even if there are fewer."""
        self._tokens = self.tokens(limit, now_ms) - count

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long it takes to earn what was overdrawn."""
        return _rounded(max(-self.tokens(limit, now_ms), 0) / limit * 1000)

    def is_forgotten(self, now_ms: int) -> bool:
        """Is it full after all this time, as a new one is? An overdrawn one may need longer."""
        return now_ms - self._now_ms >= self._windows.memory_ms and self._tokens >= 0

    def _burst(self, limit: float) -> float:
        return limit * self._windows.count * self._windows.seconds


def _rounded(throttle_ms: float) -> int:
    return min(floor(throttle_ms + 0.5), THROTTLE_MS_MAX)
