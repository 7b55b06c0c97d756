"""A partition with committed offsets, as its leader reports it, and the position of a group in it."""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from runnel.observe.lag.first_unread import FirstUnread
from runnel.observe.lag.timeline import Timeline
from runnel.observe.lag.window import Commit, Window

NOT_OBSERVED = "not observed yet"
BEFORE_OBSERVATION = "the record was appended before this coordinator observed the partition"
BY_RECORD_TIME = "by record time: it was appended before this coordinator observed the partition"
OPEN_TRANSACTION = "waits for an open transaction"
NO_RECORD = "no record to read: transaction markers, aborted or compacted records"
AFTER_END = "the committed offset is after the end of the partition"

RETRY_MS = 10_000
"""A failed lookup is repeated after this time."""
REFRESH_MS = 60_000
"""What was found in a log where records are removed is looked up again after this time."""


class CommittedOffset(Protocol):
    """A committed offset as the coordinator stores it: another object with every commit."""

    @property
    def offset(self) -> int: ...

    @property
    def committed_ms(self) -> int:
        """Of the wall clock."""
        ...


class Ends(NamedTuple):
    """What the leader of a partition reports."""

    end: int
    """The high watermark."""
    stable: int
    """The last stable offset."""
    start: int = 0
    """The log start offset, if it is known."""


class ObservedPartition:
    """The end of a partition over time."""

    __slots__ = (
        "ends",
        "fresh",
        "index",
        "is_compacted",
        "is_remote",
        "observed",
        "problem",
        "readers",
        "timeline",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, index: int) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = bytes(16)
        self.timeline = Timeline()
        self.ends: Ends | None = None
        self.observed = -1
        """The step at which the last observation began."""
        self.problem: str | None = NOT_OBSERVED
        """Why the end is not known."""
        self.is_compacted = False
        self.is_remote = False
        """Does another broker lead it?"""
        self.readers = 0
        """The number of groups with a committed offset."""
        self.fresh: deque[GroupPosition] = deque()
        """Positions with a new commit, until the end is observed."""

    def forget(self) -> None:
        """The topic was deleted or recreated: what is known is of another log."""
        self.timeline = Timeline()
        self.ends = None
        self.problem = NOT_OBSERVED


class TrackedGroup:
    """A group: its positions, and what they tell about its consumers."""

    __slots__ = ("id", "positions", "reads_uncommitted", "round", "untracked")

    def __init__(self, group_id: str) -> None:
        self.id = group_id
        self.positions: dict[str, dict[int, GroupPosition]] = {}
        """Topic → partition → position."""
        self.reads_uncommitted = False
        """It has committed an offset that consumers with read_committed could not have reached."""
        self.round = -1
        """The last round in which it had commits."""
        self.untracked = 0
        """The number of its committed offsets that are not tracked."""

    def all(self) -> Iterator["GroupPosition"]:
        for positions in self.positions.values():
            yield from positions.values()


class GroupPosition:
    """The last commit of a group in a partition, and what is known about the first record after it."""

    __slots__ = (
        "commit",
        "committed_ms",
        "found",
        "found_at_ms",
        "group",
        "is_fresh",
        "is_wanted",
        "offset",
        "partition",
        "retry_ms",
        "round",
        "scanned",
        "seen",
        "window",
    )

    def __init__(self, group: "TrackedGroup", partition: ObservedPartition) -> None:
        self.group = group
        self.partition = partition
        self.commit: CommittedOffset | None = None
        self.offset = -1
        self.committed_ms = 0
        self.seen = -1
        """The step at which the commit was seen."""
        self.round = -1
        """The last round in which the commit was there."""
        self.window = Window()
        self.scanned = -1
        """There is nothing to read from the committed offset up to here; not below it."""
        self.found: FirstUnread | None = None
        """The first record to read, or one before it: of the last commit for which it was looked up."""
        self.found_at_ms = 0
        self.retry_ms = 0
        """After a failed lookup: when to try again."""
        self.is_fresh = False
        self.is_wanted = False
        """Is the first unread record to be looked up, or is it being looked up?"""

    def committed(self, commit: CommittedOffset, step: int) -> None:
        """The group has committed."""
        if commit.offset < self.offset:
            self.found = None
        self.commit = commit
        if not self.offset <= commit.offset <= self.scanned:
            self.scanned = commit.offset
        self.offset = commit.offset
        self.committed_ms = commit.committed_ms
        self.seen = step
        if not self.is_fresh:
            self.is_fresh = True
            self.partition.fresh.append(self)

    def add_to_window(self, at_ms: int, ends: Ends) -> None:
        """The end of the partition was observed after the commit."""
        self.is_fresh = False
        self.window.add(Commit(at_ms, self.offset, ends.end))
        if ends.stable < self.offset <= ends.end:
            self.group.reads_uncommitted = True

    @property
    def readable_end(self) -> int:
        """The end for this group, as far as its isolation level is known; -1 if it is not observed."""
        ends = self.partition.ends
        if ends is None:
            return -1
        return ends.end if self.group.reads_uncommitted else min(ends.stable, ends.end)

    @property
    def first(self) -> int:
        """The first offset that may be that of an unread record."""
        ends = self.partition.ends
        scanned = self.scanned
        return scanned if ends is None or ends.start <= scanned else ends.start

    def needs_lookup(self, is_unchanged: bool, now_ms: int) -> bool:
        """Is it worth to look up the first unread record?

        Not for a group that moves on, unless the log has gaps or the record is older than the timeline.
        """
        first, partition, found = self.first, self.partition, self.found
        if found is not None and found.offset == first and found.timestamp_ms is not None:
            is_stale = now_ms - self.found_at_ms > REFRESH_MS
            return is_stale and (partition.is_compacted or partition.is_remote) and first < self.readable_end
        if now_ms < self.retry_ms or first >= self.readable_end:
            return False
        if is_unchanged or partition.is_compacted:
            return True
        begin = partition.timeline.first_end
        return begin is None or first < begin
