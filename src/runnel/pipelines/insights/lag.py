"""How far groups were behind, and when: from what they committed, and how far the logs had come by then."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runnel.pipelines.insights.broker_facts import GroupLag

Partition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Committed:
    """A group said at this moment that it has read a partition up to this offset."""

    group: str
    topic: str
    partition: int
    at_ms: int
    offset: int


@dataclass(frozen=True, slots=True)
class LogTimes:
    """How far a log had come: by each of these moments, up to the offset beside it."""

    moments_ms: Sequence[int]
    ends: Sequence[int]

    def end_at(self, at_ms: int) -> int | None:
        """One past the last offset at a moment, or None where that is before what is known."""
        place = bisect_right(self.moments_ms, at_ms) - 1
        return None if place < 0 else self.ends[place]


def standing(lags: Sequence[GroupLag], commits: Sequence[Committed]) -> list[Committed]:
    """Where groups stood all the while: partitions in which they have a place, but committed none of late."""
    first_ms: dict[str, int] = {}
    for commit in commits:
        first_ms[commit.group] = min(first_ms.get(commit.group, commit.at_ms), commit.at_ms)
    moved = {(commit.group, commit.topic, commit.partition) for commit in commits}
    return [
        Committed(each.group, each.topic, each.partition, first_ms[each.group], each.committed)
        for each in lags
        if each.group in first_ms and (each.group, each.topic, each.partition) not in moved
    ]


def lag_history(
    commits: Sequence[Committed], logs: Mapping[Partition, LogTimes], step_ms: int, now_ms: int
) -> dict[str, list[tuple[int, int]]]:
    """The lag of each group at the end of each step: the sum over all partitions it has committed by then."""
    history: dict[str, list[tuple[int, int]]] = {}
    by_group: dict[str, list[Committed]] = {}
    for commit in sorted(commits, key=lambda commit: commit.at_ms):
        by_group.setdefault(commit.group, []).append(commit)
    for group, own in by_group.items():
        positions: dict[Partition, int] = {}
        index = 0
        points = []
        for at_ms in _steps(own, logs, step_ms, now_ms):
            while index < len(own) and own[index].at_ms < at_ms:
                positions[own[index].topic, own[index].partition] = own[index].offset
                index += 1
            points.append((min(at_ms, now_ms), _lag(positions, logs, at_ms)))
        if points:
            history[group] = points
    return history


def _steps(own: Sequence[Committed], logs: Mapping[Partition, LogTimes], step_ms: int, now_ms: int) -> range:
    touched = {(commit.topic, commit.partition) for commit in own}
    ends = [logs[place].moments_ms[-1] for place in touched if place in logs and logs[place].moments_ms]
    first = own[0].at_ms - own[0].at_ms % step_ms + step_ms
    # A record may carry a time from far ahead: nothing has come later than now.
    last = min(max([own[-1].at_ms + 1, *ends]), now_ms + 1)
    return range(first, last + step_ms, step_ms)


def _lag(positions: Mapping[Partition, int], logs: Mapping[Partition, LogTimes], at_ms: int) -> int:
    lag = 0
    for place, offset in positions.items():
        end = logs[place].end_at(at_ms) if place in logs else None
        if end is not None:
            lag += max(0, end - offset)
    return lag
