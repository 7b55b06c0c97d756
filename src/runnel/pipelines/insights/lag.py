"""Lag of groups over time, from their offset commits and the end offsets of partitions."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runnel.pipelines.insights.broker_facts import GroupLag

Partition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class GroupCommit:
    """An offset commit of a group."""

    group: str
    topic: str
    partition: int
    at_ms: int
    offset: int


@dataclass(frozen=True, slots=True)
class EndOffsets:
    """The end offsets of a partition over time."""

    moments_ms: Sequence[int]
    ends: Sequence[int]

    def end_at(self, at_ms: int) -> int | None:
        """The end offset at a time; None before the first known time."""
        index = bisect_right(self.moments_ms, at_ms) - 1
        return None if index < 0 else self.ends[index]


def unchanged_offsets(lags: Sequence[GroupLag], commits: Sequence[GroupCommit]) -> list[GroupCommit]:
    """Committed offsets of partitions without commits in the window, as of the group's first commit."""
    first_ms: dict[str, int] = {}
    for commit in commits:
        first_ms[commit.group] = min(first_ms.get(commit.group, commit.at_ms), commit.at_ms)
    moved = {(commit.group, commit.topic, commit.partition) for commit in commits}
    return [
        GroupCommit(each.group, each.topic, each.partition, first_ms[each.group], each.committed)
        for each in lags
        if each.group in first_ms and (each.group, each.topic, each.partition) not in moved
    ]


def lag_history(
    commits: Sequence[GroupCommit], logs: Mapping[Partition, EndOffsets], step_ms: int, now_ms: int
) -> dict[str, list[tuple[int, int]]]:
    """The lag of each group at the end of each step, summed over its partitions."""
    history: dict[str, list[tuple[int, int]]] = {}
    by_group: dict[str, list[GroupCommit]] = {}
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


def _steps(
    own: Sequence[GroupCommit], logs: Mapping[Partition, EndOffsets], step_ms: int, now_ms: int
) -> range:
    touched = {(commit.topic, commit.partition) for commit in own}
    ends = [logs[index].moments_ms[-1] for index in touched if index in logs and logs[index].moments_ms]
    first = own[0].at_ms - own[0].at_ms % step_ms + step_ms
    # Timestamps may be in the future: clamp to now.
    last = min(max([own[-1].at_ms + 1, *ends]), now_ms + 1)
    return range(first, last + step_ms, step_ms)


def _lag(positions: Mapping[Partition, int], logs: Mapping[Partition, EndOffsets], at_ms: int) -> int:
    lag = 0
    for index, offset in positions.items():
        end = logs[index].end_at(at_ms) if index in logs else None
        if end is not None:
            lag += max(0, end - offset)
    return lag
