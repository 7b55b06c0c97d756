"""The real clock, timers and randomness behind the broker's ports."""

import asyncio
import os
import time
from collections.abc import Callable


class SystemClock:
    """The system clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    seconds = staticmethod(time.monotonic)


class LoopTimers:
    """Callbacks on the running event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_ms / 1000, callback)


class SystemEntropy:
    """Randomness from the operating system."""

    def id_bytes(self) -> bytes:
        return os.urandom(16)

    def below(self, bound: int) -> int:
        assert bound > 0
        # As secrets.randbelow, whose module imports much that a broker does not need.
        bits = bound.bit_length()
        while (number := int.from_bytes(os.urandom((bits + 7) // 8), "big") >> -bits % 8) >= bound:
            pass
        return number
