"""How fast new things may come."""

from math import inf


class Pace:
    """So many per second: one second's worth may come at once, then each waits for its turn."""

    __slots__ = ("_allowance", "_counted_at", "per_second")

    def __init__(self, per_second: int, now: float) -> None:
        self.per_second = per_second
        self._allowance = float(per_second)
        self._counted_at = now

    def wait_seconds(self, now: float) -> float:
        """How long the next one must wait; 0 is not at all, and infinite where none may ever come."""
        earned = (now - self._counted_at) * self.per_second
        self._allowance = min(self._allowance + earned, self.per_second)
        self._counted_at = now
        if self._allowance >= 1:
            return 0
        return (1 - self._allowance) / self.per_second if self.per_second else inf

    def take(self) -> None:
        """One came."""
        self._allowance -= 1
