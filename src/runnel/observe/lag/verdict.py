"""Whether a group keeps up in a partition, and when it will have caught up.

The rules are Burrow's, in its order, over the last commits:

    ok        nothing is unread, or only for some seconds
    stopped   records wait, and no commit has arrived for much longer than usual
    ok        one of the commits was at the end of the partition
    rewound   a commit was before the previous one
    stalled   all commits have the same offset
    lagging   the lag has not fallen from any commit to the next
    ok        otherwise
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

from runnel.observe.lag.window import Commit

FRESH_MS = 10_000
"""A group that is no more than this behind keeps up: its next commit is about to arrive."""

SILENCE_MIN_MS = 30_000
"""No group has stopped before it was silent for this long."""
INTERVALS_MAX = 3
"""A group has stopped if it is silent for more than this many of its usual intervals between commits."""

STALLED_COMMITS_MIN = 2
LAGGING_COMMITS_MIN = 5

RATES_MS_MIN = 5000
"""Rates are known after this time."""

NEVER = float("inf")
"""The forecast of a group that does not catch up at this pace."""


class Verdict(Enum):
    """Whether a group keeps up; the later, the worse."""

    UNKNOWN = "unknown"
    OK = "ok"
    LAGGING = "lagging"
    REWOUND = "rewound"
    STALLED = "stalled"
    STOPPED = "stopped"


_ORDER = list(Verdict)


class Position(NamedTuple):
    """Where a group is in a partition, as last observed."""

    at_ms: int
    offset: int
    end: int
    waiting_ms: int | None
    """How long the first unread record waits: the lag in time; None if it is not known, 0 if none waits."""
    silent_ms: int
    """How long ago the last commit was."""


def verdict_of(commits: Sequence[Commit], now: Position) -> Verdict:
    """The verdict on one partition."""
    waiting_ms = now.silent_ms if now.waiting_ms is None else now.waiting_ms
    if now.waiting_ms == 0 or now.offset >= now.end or waiting_ms <= FRESH_MS:
        return Verdict.OK
    if not commits:
        return Verdict.UNKNOWN
    span_ms = commits[-1].at_ms - commits[0].at_ms
    usual_ms = span_ms // (len(commits) - 1) if len(commits) > 1 else 0
    if min(now.silent_ms, waiting_ms) > max(SILENCE_MIN_MS, INTERVALS_MAX * usual_ms):
        return Verdict.STOPPED
    if any(commit.lag == 0 for commit in commits):
        return Verdict.OK
    pairs = list(pairwise(commits))
    if any(later.offset < earlier.offset for earlier, later in pairs):
        return Verdict.REWOUND
    is_still = all(later.offset == earlier.offset for earlier, later in pairs)
    if is_still and len(commits) >= STALLED_COMMITS_MIN and span_ms >= SILENCE_MIN_MS:
        return Verdict.STALLED
    has_grown = all(later.lag >= earlier.lag for earlier, later in pairs)
    if has_grown and len(commits) >= LAGGING_COMMITS_MIN:
        return Verdict.LAGGING
    return Verdict.OK


def forecast_of(commits: Sequence[Commit], now: Position, verdict: Verdict) -> float | None:
    """Seconds until the group has caught up in one partition; NEVER, or None if that is not known."""
    if now.waiting_ms == 0 or now.offset >= now.end:
        return 0.0
    if verdict in (Verdict.STOPPED, Verdict.STALLED):
        return NEVER
    base = _since_rewound(commits)
    if base is None or commits[-1].at_ms - base.at_ms < RATES_MS_MIN:
        return None
    # From commit to commit: the records that were consumed since the last one are not known.
    consumed_per_ms = (commits[-1].offset - base.offset) / (commits[-1].at_ms - base.at_ms)
    produced_per_ms = (now.end - base.end) / (now.at_ms - base.at_ms)
    if consumed_per_ms <= produced_per_ms:
        return NEVER
    return (now.end - now.offset) / (consumed_per_ms - produced_per_ms) / 1000


def _since_rewound(commits: Sequence[Commit]) -> Commit | None:
    """The first commit after the last rewind."""
    base: Commit | None = None
    previous = -1
    for commit in commits:
        if base is None or commit.offset < previous:
            base = commit
        previous = commit.offset
    return base


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict on a group."""
    return max(verdicts, key=_ORDER.index, default=Verdict.UNKNOWN)


def latest(forecasts: Iterable[float | None]) -> float | None:
    """The forecast of a group: it has caught up when it has in all partitions."""
    known = list(forecasts)
    if NEVER in known:
        return NEVER
    if not known or None in known:
        return None
    return max(seconds for seconds in known if seconds is not None)
