"""Groups with their lag, verdict and forecast, as values and as JSON."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from runnel.observe.lag.lag import Now, PartitionLag, partition_lag
from runnel.observe.lag.partitions import GroupPosition, TrackedGroup
from runnel.observe.lag.verdict import NEVER, Position, Verdict, forecast_of, latest, verdict_of, worst

LIMIT_DEFAULT = 1000
LIMIT_MAX = 10_000
"""Groups per response."""


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


def group_lag(facts: GroupFacts, group: TrackedGroup | None, now: Now) -> GroupLag:
    """Evaluate a group; None has no committed offsets."""
    partitions: list[PartitionLag] = []
    verdicts: list[Verdict] = []
    forecasts: list[float | None] = []
    for position in () if group is None else group.all():
        lag = partition_lag(position, now)
        partitions.append(lag)
        if lag.lag is None:
            forecasts.append(None)
            continue
        verdict, forecast = _judge(position, lag, now)
        verdicts.append(verdict)
        forecasts.append(forecast)
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
    commits = list(position.window)
    verdict = verdict_of(commits, current)
    return verdict, forecast_of(commits, current, verdict)


def page(group_ids: Iterable[str], query: dict[str, list[str]]) -> tuple[list[str], str | None]:
    """The groups that a query names, in order, and where the next page begins after. Raises ValueError."""
    known = sorted(group_ids)
    if "group" in query:
        wanted = set(query["group"])
        return [group_id for group_id in known if group_id in wanted], None
    limit = int(query.get("limit", [str(LIMIT_DEFAULT)])[-1])
    if not 1 <= limit <= LIMIT_MAX:
        raise ValueError(f"limit must be between 1 and {LIMIT_MAX}, not {limit}")
    after = query.get("after", [""])[-1]
    later = [group_id for group_id in known if group_id > after]
    return later[:limit], later[limit - 1] if len(later) > limit else None


def json_of(
    groups: Iterable[str], evaluate: Callable[[str], GroupLag | None], as_of_ms: int, after: str | None
) -> Iterator[bytes]:
    """The response to a query, group by group; groups that are gone meanwhile are left out."""
    yield f'{{"as_of_ms":{as_of_ms},"groups":['.encode()
    separator = b""
    for group_id in groups:
        group = evaluate(group_id)
        if group is None:
            # Something for each, as the event loop serves others in between.
            yield b""
            continue
        yield separator + json.dumps(group_json(group), separators=(",", ":")).encode()
        separator = b","
    yield (f'],"after":{json.dumps(after)}}}').encode()


def group_json(group: GroupLag) -> dict[str, Any]:
    """A group as JSON."""
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
        "partitions": [
            {
                "topic": lag.topic,
                "partition": lag.partition,
                "committed": lag.committed,
                "end": lag.end,
                "lag": lag.lag,
                "lag_seconds": _seconds(lag.lag_ms),
                "reason": lag.reason,
            }
            for lag in group.partitions
        ],
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
