"""Clock, timers, randomness and I/O workers of a simulation."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from runnel.disk.workers import InlineWorkers

Result = TypeVar("Result")

EPOCH_MS = 1_700_000_000_000
"""Wall-clock time at which every simulation starts."""

SYNC_SECONDS_MAX = 0.02
"""Upper bound of the duration of a disk sync; most are much shorter."""


class SimClock:
    """Virtual time as a wall clock."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return EPOCH_MS + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def seconds(self) -> float:
        return self._loop.time()


class SimTimers:
    """Callbacks in virtual time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_ms / 1000, callback)


class SimEntropy:
    """Randomness determined by the seed."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def id_bytes(self) -> bytes:
        return self._random.randbytes(16)

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)


class SimWorkers:
    """Executes file operations with a delay, so that a crash can precede them."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        random: Random,
        slowness: Callable[[], float] = lambda: 1,
    ) -> None:
        """`slowness` is how many times longer than usual an operation takes."""
        self._loop = loop
        self._random = random
        self._slowness = slowness
        self._in_flight: dict[int, Callable[[], None]] = {}
        self._submitted = 0

    def submit(
        self, work: Callable[[], Result], done: Callable[[Result | None, BaseException | None], None]
    ) -> None:
        self._submitted += 1
        number = self._submitted

        def finish() -> None:
            if self._in_flight.pop(number, None) is not None:
                InlineWorkers().submit(work, complete)

        def complete(result: Result | None, failure: BaseException | None) -> None:
            self._loop.call_soon(done, result, failure)

        self._in_flight[number] = finish
        seconds = self._random.random() ** 3 * SYNC_SECONDS_MAX
        self._loop.call_later(seconds * self._slowness(), finish)

    def run_all(self, works: Sequence[Callable[[], Result]]) -> list[Result | BaseException]:
        return InlineWorkers().run_all(works)

    def drain(self) -> None:
        for finish in list(self._in_flight.values()):
            finish()

    def close(self) -> None:
        self.drain()
