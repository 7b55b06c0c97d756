"""Clock, timers, randomness and file threads of a simulated world."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from runnel.disk.workers import InlineWorkers

Result = TypeVar("Result")

EPOCH_MS = 1_700_000_000_000
"""When every simulated world begins."""

SYNC_SECONDS_MAX = 0.02
"""The slowest disk sync; most are much quicker."""


class SimClock:
    """Virtual time as a wall clock."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return EPOCH_MS + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return int(self._loop.time() * 1000)


class SimTimers:
    """Callbacks in virtual time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_ms / 1000, callback)


class SimEntropy:
    """Randomness that the seed repeats."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def id_bytes(self) -> bytes:
        return self._random.randbytes(16)

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)


class SimWorkers:
    """File work that happens a moment later, so that a crash can come first."""

    def __init__(self, loop: asyncio.AbstractEventLoop, random: Random) -> None:
        self._loop = loop
        self._random = random
        self._under_way: dict[int, Callable[[], None]] = {}
        self._submitted = 0

    def submit(
        self, work: Callable[[], Result], done: Callable[[Result | None, BaseException | None], None]
    ) -> None:
        self._submitted += 1
        number = self._submitted

        def finish() -> None:
            if self._under_way.pop(number, None) is not None:
                InlineWorkers().submit(work, tell)

        def tell(result: Result | None, failure: BaseException | None) -> None:
            self._loop.call_soon(done, result, failure)

        self._under_way[number] = finish
        self._loop.call_later(self._random.random() ** 3 * SYNC_SECONDS_MAX, finish)

    def run_all(self, works: Sequence[Callable[[], Result]]) -> list[Result | BaseException]:
        return InlineWorkers().run_all(works)

    def drain(self) -> None:
        for finish in list(self._under_way.values()):
            finish()

    def close(self) -> None:
        self.drain()
