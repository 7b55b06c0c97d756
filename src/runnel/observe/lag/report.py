"""Groups with their lag, verdict and forecast, as values and as JSON."""

import json
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from runnel.observe.lag.lag import Now, PartitionLag, partition_lag
from runnel.observe.lag.partitions import GroupPosition, TrackedGroup
from runnel.observe.lag.verdict import NEVER, Position, Verdict, forecast_of, latest, verdict_of, worst

LIMIT_DEFAULT = 1000
LIMIT_MAX = 10_000
"""Groups per response."""


SLICE = 200
"""Partitions that are evaluated at a time: two milliseconds at most."""


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """What the coordinator knows about a group besides its offsets."""

    id: str
    state: str
    protocol: str
    """classic or consumer"""
    members: int


@dataclass(frozen=True, slots=True)
class GroupLag:
    """The lag of a group."""

    facts: GroupFacts
    lag: int | None
    """The sum over its partitions; None if none is known."""
    lag_ms: int | None
    """The largest of its partitions; None if none is known."""
    verdict: Verdict
    forecast_seconds: float | None
    """NEVER if it does not catch up at this pace; None if that is not known."""
    partitions: Sequence[PartitionLag]
    unknown: int
    """The number of committed offsets without a lag in seconds."""


Evaluating: TypeAlias = Generator[None, None, GroupLag | None]
Evaluate: TypeAlias = Callable[[str], Evaluating]
"""Evaluates a group by its id, in slices; None if it no longer exists."""


def evaluation(facts: GroupFacts, group: TrackedGroup | None, now: Now) -> Generator[None, None, GroupLag]:
    """Evaluate a group, None of which has no committed offsets; yields after each slice."""
    partitions: list[PartitionLag] = []
    verdicts: list[Verdict] = []
    forecasts: list[float | None] = []
    for position in [] if group is None else list(group.all()):
        lag = partition_lag(position, now)
        partitions.append(lag)
        if lag.lag is not None:
            verdict, forecast = _judge(position, lag, now)
            verdicts.append(verdict)
            forecasts.append(forecast)
        else:
            forecasts.append(None)
        if len(partitions) % SLICE == 0:
            yield
    partitions.sort(key=lambda lag: (lag.topic, lag.partition))
    known = [lag.lag_ms for lag in partitions if lag.lag_ms is not None]
    records = [lag.lag for lag in partitions if lag.lag is not None]
    untracked = 0 if group is None else group.untracked
    return GroupLag(
        facts,
        sum(records) if records else None,
        max(known, default=None),
        worst(verdicts),
        latest(forecasts),
        partitions,
        len(partitions) - len(known) + untracked,
    )


def _judge(position: GroupPosition, lag: PartitionLag, now: Now) -> tuple[Verdict, float | None]:
    if not lag.lag or lag.lag_ms == 0 or lag.end is None:
        return Verdict.OK, 0.0
    silent_ms = max(now.wall_ms - position.committed_ms, 0)
    current = Position(now.monotonic_ms, position.offset, lag.end, lag.lag_ms, silent_ms)
    commits = position.window.commits()
    verdict = verdict_of(commits, current)
    return verdict, forecast_of(commits, current, verdict)


@dataclass(frozen=True, slots=True)
class Page:
    """The groups of a response."""

    groups: Sequence[str]
    after: str | None = None
    """There are more: those after this one."""
    has_partitions: bool = True


def page(group_ids: Iterable[str], query: Mapping[str, Sequence[str]]) -> Page:
    """The groups that a query requests, in order. Raises ValueError if it is invalid.

    `group` names groups; without it all are returned, at most `limit`, those `after` a name. With
    `partitions=0`, partitions are left out.
    """
    known = sorted(group_ids)
    has_partitions = query.get("partitions", ["1"])[-1] != "0"
    if "group" in query:
        wanted = set(query["group"])
        return Page([group_id for group_id in known if group_id in wanted], None, has_partitions)
    limit = int(query.get("limit", [str(LIMIT_DEFAULT)])[-1])
    if not 1 <= limit <= LIMIT_MAX:
        raise ValueError(f"limit must be between 1 and {LIMIT_MAX}, not {limit}")
    later = known[bisect_right(known, query.get("after", [""])[-1]) :]
    return Page(later[:limit], later[limit - 1] if len(later) > limit else None, has_partitions)


def json_of(shown: Page, evaluate: Evaluate, head: Mapping[str, Any]) -> Iterator[bytes]:
    """A response: the fields of `head`, and the groups. Pieces are empty where work can be interrupted."""
    yield (_compact({**head, "after": shown.after}).removesuffix("}") + ',"groups":[').encode()
    separator = b""
    for group_id in shown.groups:
        group = yield from _with_pauses(evaluate(group_id))
        if group is None:
            continue
        yield separator
        yield from _group_text(group, shown.has_partitions)
        separator = b","
    yield b"]}"


def _with_pauses(
    evaluating: Generator[None, None, GroupLag | None],
) -> Generator[bytes, None, GroupLag | None]:
    while True:
        try:
            next(evaluating)
        except StopIteration as end:
            result: GroupLag | None = end.value
            return result
        yield b""


def _group_text(group: GroupLag, has_partitions: bool) -> Iterator[bytes]:
    text = _compact(group_json(group))
    if not has_partitions:
        yield text.encode()
        return
    yield (text.removesuffix("}") + ',"partitions":[').encode()
    for start in range(0, len(group.partitions), SLICE):
        part = ",".join(_compact(partition_json(lag)) for lag in group.partitions[start : start + SLICE])
        yield ("," + part if start else part).encode()
    yield b"]}"


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def group_json(group: GroupLag) -> dict[str, Any]:
    """A group as JSON, without its partitions."""
    forecast = group.forecast_seconds
    return {
        "group": group.facts.id,
        "state": group.facts.state,
        "protocol": group.facts.protocol,
        "members": group.facts.members,
        "lag": group.lag,
        "lag_seconds": _seconds(group.lag_ms),
        "verdict": group.verdict.value,
        "forecast": forecast_word(forecast),
        "forecast_seconds": None if forecast is None or forecast == NEVER else round(forecast, 1),
        "unknown": group.unknown,
    }


def partition_json(lag: PartitionLag) -> dict[str, Any]:
    """A partition of a group as JSON."""
    return {
        "topic": lag.topic,
        "partition": lag.partition,
        "committed": lag.committed,
        "end": lag.end,
        "lag": lag.lag,
        "lag_seconds": _seconds(lag.lag_ms),
        "reason": lag.reason,
    }


def forecast_word(seconds: float | None) -> str:
    """The kind of a forecast."""
    if seconds is None:
        return "unknown"
    if seconds == NEVER:
        return "never"
    return "catching up" if seconds > 0 else "caught up"


def _seconds(duration_ms: int | None) -> float | None:
    return None if duration_ms is None else duration_ms / 1000
