"""The lag of all groups during the last day: a sample a minute, in memory, for pages that look back.

There is one history for all users. A page shows only groups that its user may describe, and only to users who
could read the lag from brokers themselves.
"""

import asyncio
import logging
import time
from array import array
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from math import isnan, nan

from runnel.client.errors import ClientError
from runnel.gateway.lag import LagSummary

INTERVAL_S = 60.0
KEPT = 1440
"""A day."""
GROUPS_MAX = 1000
"""Groups with a history: 17 KB each. Further groups have none."""

log = logging.getLogger("runnel.console")


@dataclass(frozen=True, slots=True)
class PastLag:
    """The lag of a group at some time; None where it was not known."""

    at_ms: int
    lag: int
    seconds: float | None


@dataclass(slots=True)
class _Series:
    """The samples of one group, from one of all samples on."""

    first: int
    lags: "array[float]" = field(default_factory=lambda: array("d"))
    seconds: "array[float]" = field(default_factory=lambda: array("f"))

    def add(self, number: int, lag: float, seconds: float) -> None:
        missing = number - self.first - len(self.lags)
        self.lags.extend([nan] * missing + [lag])
        self.seconds.extend([nan] * missing + [seconds])

    def drop_before(self, number: int) -> None:
        count = number - self.first
        if count > 0:
            del self.lags[:count], self.seconds[:count]
            self.first = number


class LagHistory:
    """Samples of the lag of groups."""

    def __init__(self) -> None:
        self._times: list[int] = []
        self._first = 0
        """The number of the oldest sample."""
        self._groups: dict[str, _Series] = {}
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._times)

    @property
    def since_ms(self) -> int | None:
        """When the oldest sample was taken."""
        return self._times[0] if self._times else None

    def add(self, at_ms: int, summaries: Mapping[str, LagSummary]) -> None:
        """Add a sample; what is older than a day is dropped."""
        number = self._first + len(self._times)
        self._times.append(at_ms)
        for name, summary in summaries.items():
            series = self._groups.get(name)
            if series is None:
                if len(self._groups) >= GROUPS_MAX:
                    continue
                series = self._groups[name] = _Series(number)
            series.add(number, summary.lag, nan if summary.seconds is None else summary.seconds)
        if len(self._times) > KEPT:
            self._first += 1
            del self._times[0]
            for name, series in list(self._groups.items()):
                series.drop_before(self._first)
                if not series.lags:
                    del self._groups[name]

    def at(self, at_ms: int) -> dict[str, PastLag]:
        """The last sample at or before a time; empty if there is none."""
        index = bisect_right(self._times, at_ms) - 1
        if index < 0:
            return {}
        found = ((name, self._sample(series, index)) for name, series in self._groups.items())
        return {name: sample for name, sample in found if sample is not None}

    def of(self, group: str) -> list[PastLag]:
        """All samples of a group, oldest first."""
        series = self._groups.get(group)
        if series is None:
            return []
        samples = (self._sample(series, index) for index in range(len(self._times)))
        return [sample for sample in samples if sample is not None]

    def _sample(self, series: _Series, index: int) -> PastLag | None:
        place = self._first + index - series.first
        if not 0 <= place < len(series.lags) or isnan(series.lags[place]):
            return None
        seconds = series.seconds[place]
        return PastLag(self._times[index], int(series.lags[place]), None if isnan(seconds) else seconds)

    def start(self, read: Callable[[], Awaitable[Mapping[str, LagSummary]]]) -> None:
        """Take samples with this function from now on."""
        self._task = asyncio.create_task(self._sampling(read))

    async def close(self) -> None:
        """Stop sampling."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _sampling(self, read: Callable[[], Awaitable[Mapping[str, LagSummary]]]) -> None:
        while True:
            try:
                summaries = await read()
            except ClientError as error:
                log.info("the lag of groups cannot be read: %s", error)
            else:
                if summaries:
                    self.add(time.time_ns() // 1_000_000, summaries)
            await asyncio.sleep(INTERVAL_S)
