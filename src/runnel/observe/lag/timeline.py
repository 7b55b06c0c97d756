"""When records were appended: the end offset of a partition at the times when it was observed.

    end offset   40 ······ 40 ──── 75 ──── 90 ─────────── 400
    time         10:00     10:07   10:08   10:09          10:10
                 └ unchanged ┘ └ the records 40-74 were appended here

A record below an end offset was appended before that offset was observed, and after the observation of the
last end offset that is not above it. Observations without a change are not kept, except for the last one
before a change, which is where that interval begins.

An end offset is a high watermark: a record counts as appended when consumers can read it. The times are of a
monotonic clock, so that a step of the wall clock changes no lag.
"""

from array import array
from bisect import bisect_right

RESOLUTION_MS = 1000
"""Points are this far apart, and no append time is later than the real one by more."""
RECENT_MAX = 900
"""Points that are kept as they were observed: a quarter of an hour of constant appends."""
COARSE_MS = 60_000
"""Older points are thinned to one in this time."""
COARSE_MAX = 1440
AGE_MAX_MS = 86_400_000
"""Points are kept for a day."""

_EXCESS_MAX = 64
"""Points are thinned when there are this many more recent ones: not with every observation."""


class Timeline:
    """The end offsets of one partition over time, at most `RECENT_MAX + COARSE_MAX` points and some more."""

    __slots__ = ("_coarse", "_ends", "_seen_ms", "_times")

    def __init__(self) -> None:
        self._ends = array("q")
        self._times = array("q")
        self._coarse = 0
        """The number of points that are thinned."""
        self._seen_ms = 0
        """When the last end offset was last observed."""

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def began_ms(self) -> int | None:
        """The time of the first point: everything below its offset was appended before."""
        return self._times[0] if self._times else None

    @property
    def first_end(self) -> int | None:
        """The first end offset that was observed: what is below was appended before `began_ms`."""
        return self._ends[0] if self._ends else None

    def observe(
        self, end: int, at_ms: int, recent_max: int = RECENT_MAX, coarse_max: int = COARSE_MAX
    ) -> None:
        """The end offset at this time, which is not before that of the last observation."""
        ends, times = self._ends, self._times
        if ends and end < ends[-1]:
            # Records were lost: what is appended there from now on is new.
            kept = bisect_right(ends, end)
            del ends[kept:], times[kept:]
            self._coarse = min(self._coarse, kept)
            self._seen_ms = times[-1] if times else at_ms
        if ends and end == ends[-1]:
            self._seen_ms = at_ms
            return
        if ends and self._seen_ms > times[-1]:
            self._add(ends[-1], self._seen_ms)
        self._add(end, at_ms)
        self._seen_ms = at_ms
        if len(ends) - self._coarse > recent_max + _EXCESS_MAX:
            self._thin(recent_max, coarse_max)

    def interval(self, offset: int) -> tuple[int | None, int] | None:
        """(after, at or before): the times between which the record at `offset` was appended.

        The first is None if that was before the first observation. None if `offset` is not below the end.
        """
        index = bisect_right(self._ends, offset)
        if index == len(self._ends):
            return None
        return (self._times[index - 1] if index else None), self._times[index]

    def appended_ms(self, offset: int) -> int | None:
        """When the record at `offset` was appended, if that was observed.

        Records are taken to arrive evenly between two points, but none later than `RESOLUTION_MS` after the
        first of them: a lag is never stated too small by more than that. Too large it is by at most the
        distance of the points.
        """
        index = bisect_right(self._ends, offset)
        if index == 0 or index == len(self._ends):
            return None
        after, until = self._times[index - 1], self._times[index]
        first, end = self._ends[index - 1], self._ends[index]
        evenly = (until - after) * (offset - first) // (end - first)
        return after + min(evenly, RESOLUTION_MS)

    def _add(self, end: int, at_ms: int) -> None:
        ends, times = self._ends, self._times
        if len(ends) - self._coarse >= 2 and at_ms - times[-2] < RESOLUTION_MS:
            ends[-1], times[-1] = end, at_ms
        else:
            ends.append(end)
            times.append(at_ms)

    def _thin(self, recent_max: int, coarse_max: int) -> None:
        ends, times = self._ends, self._times
        recent = len(ends) - recent_max
        kept_ends, kept_times = ends[: self._coarse], times[: self._coarse]
        for index in range(self._coarse, recent):
            if not kept_times or times[index + 1] - kept_times[-1] > COARSE_MS:
                kept_ends.append(ends[index])
                kept_times.append(times[index])
        # One point before the oldest age is where its interval begins.
        first = max(bisect_right(kept_times, times[-1] - AGE_MAX_MS) - 1, len(kept_ends) - coarse_max, 0)
        del kept_ends[:first], kept_times[:first]
        self._coarse = len(kept_ends)
        self._ends = kept_ends + ends[recent:]
        self._times = kept_times + times[recent:]
