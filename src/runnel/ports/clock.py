"""Clock and timers."""

from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """The wall clock for record timestamps, and a monotonic clock."""

    def now_ms(self) -> int: ...

    def monotonic_ms(self) -> int: ...

    def seconds(self) -> float:
        """The monotonic clock with its full precision, for measuring durations; callable in any thread."""
        ...


class TimerHandle(Protocol):
    """A callback that has not run yet."""

    def cancel(self) -> None: ...


class Timers(Protocol):
    """Delayed callbacks on the broker's thread."""

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> TimerHandle: ...
