"""Time, as the broker is allowed to see it."""

from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """The wall clock that records are stamped with, and a clock that never goes back."""

    def now_ms(self) -> int: ...

    def monotonic_ms(self) -> int: ...


class TimerHandle(Protocol):
    """A callback that has not run yet."""

    def cancel(self) -> None: ...


class Timers(Protocol):
    """Callbacks at a later moment, on the broker's own thread."""

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> TimerHandle: ...
