"""Rate limiter."""

from math import inf


class TokenBucket:
    """A token bucket with a burst of one second."""

    __slots__ = ("_allowance", "_counted_at", "per_second")

    def __init__(self, per_second: int, now: float) -> None:
        self.per_second = per_second
        self._allowance = float(per_second)
        self._counted_at = now

    def wait_seconds(self, now: float) -> float:
        """Delay until the next event is allowed; infinite for rate 0."""
        earned = (now - self._counted_at) * self.per_second
        self._allowance = min(self._allowance + earned, self.per_second)
        self._counted_at = now
        if self._allowance >= 1:
            return 0
        return (1 - self._allowance) / self.per_second if self.per_second else inf

    def take(self) -> None:
        """Consume a token."""
        self._allowance -= 1
