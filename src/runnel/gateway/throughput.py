"""Records and bytes per second of the cluster, sampled while a page shows them."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from runnel.client.errors import ClientError

INTERVAL_S = 2.0
SAMPLES_MAX = 450
"""A quarter of an hour."""

UNUSED_S = 120.0
"""Sampling ends this long after the last page asked."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Counters of the whole cluster at one moment; those that are not known are None."""

    records: int | None
    """Sums of end offsets, or of the brokers' own counters."""
    bytes_in: float | None = None
    bytes_out: float | None = None
    by_topic: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates per second between two moments."""

    at_s: float
    """Seconds since 1970."""
    records: float | None
    bytes_in: float | None
    bytes_out: float | None


def rates_between(before: Totals, after: Totals, seconds: float, at_s: float) -> Rates:
    """A counter that fell was reset: a topic was deleted, or a broker restarted."""

    def rate(old: float | None, new: float | None) -> float | None:
        return None if old is None or new is None or new < old or seconds <= 0 else (new - old) / seconds

    return Rates(
        at_s,
        rate(before.records, after.records),
        rate(before.bytes_in, after.bytes_in),
        rate(before.bytes_out, after.bytes_out),
    )


class Throughput:
    """The rates of the last quarter of an hour."""

    def __init__(self, read: Callable[[], Awaitable[Totals]]) -> None:
        self._read = read
        self._task: asyncio.Task[None] | None = None
        self._used_s = 0.0
        self.rates: deque[Rates] = deque(maxlen=SAMPLES_MAX)
        self.by_topic: dict[str, float] = {}
        """Records per second of topics, in the last interval."""

    def use(self) -> None:
        """Keep sampling for a while."""
        self._used_s = asyncio.get_running_loop().time()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._sample())

    @property
    def latest(self) -> Rates | None:
        return self.rates[-1] if self.rates else None

    async def close(self) -> None:
        """Stop sampling."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _sample(self) -> None:
        loop = asyncio.get_running_loop()
        before: tuple[float, Totals] | None = None
        while loop.time() - self._used_s < UNUSED_S:
            try:
                totals = await self._read()
            except ClientError:
                # A gap in the chart; the page shows what is wrong.
                before = None
            else:
                now_s = loop.time()
                if before is not None:
                    self._add(before[1], totals, now_s - before[0])
                before = now_s, totals
            await asyncio.sleep(INTERVAL_S)

    def _add(self, before: Totals, after: Totals, seconds: float) -> None:
        self.rates.append(rates_between(before, after, seconds, time.time()))
        self.by_topic = {
            name: (count - old) / seconds
            for name, count in after.by_topic.items()
            if (old := before.by_topic.get(name)) is not None and count > old
        }
