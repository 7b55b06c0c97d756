"""Commits and logs for tests of the tracker."""

from dataclasses import dataclass, field

from runnel.observe.lag.lag import Now, PartitionLag, partition_lag
from runnel.observe.lag.partitions import Ends
from runnel.observe.lag.report import GroupFacts, GroupLag, evaluation
from runnel.observe.lag.tracker import LagTracker

WALL_MS = 1_700_000_000_000
"""The wall clock when the monotonic clock is 0."""


@dataclass(eq=False)
class Commit:
    """A committed offset; equal to none but itself."""

    offset: int
    committed_ms: int


@dataclass
class Log:
    """A partition: the time of every append."""

    appended_ms: list[int] = field(default_factory=list)
    stable: int | None = None

    @property
    def ends(self) -> Ends:
        end = len(self.appended_ms)
        return Ends(end, end if self.stable is None else self.stable)


class World:
    """Groups and partitions in time, and a tracker that observes them."""

    def __init__(self, **limits: int) -> None:
        self.now_ms = 0
        self.tracker = LagTracker(**limits)
        self.logs: dict[tuple[str, int], Log] = {}
        self.commits: dict[str, dict[str, dict[int, Commit]]] = {}

    def append(self, topic: str, partition: int, count: int = 1) -> None:
        self.logs.setdefault((topic, partition), Log()).appended_ms.extend([self.now_ms] * count)

    def commit(self, group: str, topic: str, partition: int, offset: int) -> None:
        commit = Commit(offset, WALL_MS + self.now_ms)
        self.commits.setdefault(group, {}).setdefault(topic, {})[partition] = commit

    def read_commits(self) -> None:
        for _ in self.tracker.read_commits(list(self.commits.items()), self.now_ms):
            pass

    def read_ends(self) -> None:
        step = self.tracker.next_step()
        for name, partition in self.tracker.partitions.items():
            if name in self.logs:
                self.tracker.observe(partition, self.logs[name].ends, step, self.now_ms)

    def sample(self) -> None:
        self.read_commits()
        self.read_ends()

    @property
    def now(self) -> Now:
        return Now(self.now_ms, WALL_MS + self.now_ms)

    def lag(self, group: str, topic: str, partition: int) -> PartitionLag:
        return partition_lag(self.tracker.groups[group].positions[topic][partition], self.now)

    def lag_ms(self, group: str, topic: str, partition: int) -> int:
        """The lag in time, which must be known."""
        lag_ms = self.lag(group, topic, partition).lag_ms
        assert lag_ms is not None
        return lag_ms

    def report(self, group: str) -> GroupLag:
        evaluating = evaluation(
            GroupFacts(group, "Stable", "classic", 1), self.tracker.groups.get(group), self.now
        )
        while True:
            try:
                next(evaluating)
            except StopIteration as end:
                found: GroupLag = end.value
                return found
