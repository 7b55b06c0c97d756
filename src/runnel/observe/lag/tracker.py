"""The groups of a coordinator: their commits, and the ends of the partitions that they have committed.

A round reads the commits first and the ends afterwards: an end that is read later is not before an offset
that was committed, and a lag is never negative. Steps number what is read, so that an end is compared only
with commits that were read before. Both are read in slices; between two of them others are served.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from runnel.observe.lag.first_unread import FirstUnread
from runnel.observe.lag.partitions import (
    RETRY_MS,
    CommittedOffset,
    Ends,
    GroupPosition,
    ObservedPartition,
    TrackedGroup,
)
from runnel.observe.lag.timeline import COARSE_MAX, RECENT_MAX

POSITIONS_MAX = 100_000
"""Committed offsets that are tracked; of others nothing is reported. They take about 70 MB."""

POINTS_MAX = 2_000_000
"""Points of all timelines, 16 bytes each: with more than 850 partitions each has fewer."""
POINTS_MIN = 30

SLICE = 1000
"""Commits per slice: some milliseconds if all are new or behind, half a millisecond if not."""

FRESH_PER_STEP = 200
"""New commits in one partition that are added to their windows at a time; others with the next end."""

WANTED_MAX = 1000
"""Lookups of first unread records that wait; others are requested again in the next round."""

Offsets = Mapping[str, Mapping[int, CommittedOffset]]
"""Topic → partition → committed offset."""


class LagTracker:
    """What is known about the groups of this coordinator."""

    def __init__(self, positions_max: int = POSITIONS_MAX) -> None:
        self.groups: dict[str, TrackedGroup] = {}
        self.partitions: dict[tuple[str, int], ObservedPartition] = {}
        self.position_count = 0
        self.has_moved = False
        """Was a new commit or end seen since this was last set to False?"""
        self._positions_max = positions_max
        self._step = 0
        self._round = 0
        self._wanted: dict[GroupPosition, None] = {}
        self._points = (RECENT_MAX, COARSE_MAX)

    def next_step(self) -> int:
        """A number for what is read next."""
        self._step += 1
        return self._step

    # -- commits

    def read_commits(self, groups: Iterable[tuple[str, Offsets]], now_ms: int) -> Iterator[None]:
        """Begin a round with the commits of all groups; yields after each slice. Drops deleted groups."""
        self._round += 1
        step, left, seen = self.next_step(), SLICE, 0
        for group_id, topics in groups:
            group = self.groups.get(group_id)
            if group is None:
                group = self.groups[group_id] = TrackedGroup(group_id)
            group.round = self._round
            group.untracked = 0
            seen += 1
            count = 0
            for topic in list(topics):
                commits = list(topics.get(topic, {}).items())
                for start in range(0, len(commits), SLICE):
                    part = commits[start : start + SLICE]
                    self._read_part(group, topic, part, step, now_ms)
                    count += len(part)
                    left -= len(part)
                    if left <= 0:
                        yield
                        step, left = self.next_step(), SLICE
            self._drop_missing(group, count)
            left -= 1
            if left <= 0:
                yield
                step, left = self.next_step(), SLICE
        if seen != len(self.groups):
            for group in [group for group in self.groups.values() if group.round != self._round]:
                left -= 1 + self._drop(list(group.all()))
                del self.groups[group.id]
                if left <= 0:
                    yield
                    left = SLICE
        self._share_points()

    def _read_part(
        self,
        group: TrackedGroup,
        topic: str,
        commits: list[tuple[int, CommittedOffset]],
        step: int,
        now_ms: int,
    ) -> None:
        positions = group.positions.get(topic)
        if positions is None:
            positions = group.positions[topic] = {}
        round_ = self._round
        has_room = len(self._wanted) < WANTED_MAX
        for index, commit in commits:
            position = positions.get(index)
            if position is None:
                if self.position_count >= self._positions_max:
                    group.untracked += 1
                    continue
                position = positions[index] = self._new_position(group, topic, index)
            position.round = round_
            is_unchanged = position.commit is commit
            if not is_unchanged:
                position.committed(commit, step)
                self.has_moved = True
            ends = position.partition.ends
            if ends is None or position.offset >= ends.end or position.is_wanted or not has_room:
                continue
            if position.needs_lookup(is_unchanged, now_ms):
                position.is_wanted = True
                self._wanted[position] = None
                has_room = len(self._wanted) < WANTED_MAX

    def _new_position(self, group: TrackedGroup, topic: str, index: int) -> GroupPosition:
        partition = self.partitions.get((topic, index))
        if partition is None:
            partition = self.partitions[topic, index] = ObservedPartition(topic, index)
        partition.readers += 1
        self.position_count += 1
        return GroupPosition(group, partition)

    def _drop_missing(self, group: TrackedGroup, count: int) -> None:
        """Drop the positions of offsets that were deleted."""
        known = sum(map(len, group.positions.values()))
        if known + group.untracked == count:
            return
        for topic, positions in list(group.positions.items()):
            gone = [index for index, position in positions.items() if position.round != self._round]
            self._drop([positions.pop(index) for index in gone])
            if not positions:
                del group.positions[topic]

    def _drop(self, positions: Sequence[GroupPosition]) -> int:
        for position in positions:
            # It may still be in the queue of its partition.
            position.is_fresh = False
            self._wanted.pop(position, None)
            partition = position.partition
            partition.readers -= 1
            if partition.readers == 0:
                del self.partitions[partition.topic, partition.index]
            elif len(partition.fresh) > 2 * partition.readers + FRESH_PER_STEP:
                partition.fresh = deque(each for each in partition.fresh if each.is_fresh)
        self.position_count -= len(positions)
        return len(positions)

    def _share_points(self) -> None:
        share = POINTS_MAX // max(len(self.partitions), 1)
        recent = share * RECENT_MAX // (RECENT_MAX + COARSE_MAX)
        self._points = (
            max(min(RECENT_MAX, recent), POINTS_MIN),
            max(min(COARSE_MAX, share - recent), POINTS_MIN),
        )

    # -- ends

    def observe(self, partition: ObservedPartition, ends: Ends, step: int, at_ms: int) -> None:
        """The ends of a partition, which began to be read at this step and time."""
        known = partition.ends
        if step < partition.observed:
            return
        if known is None or known.end != ends.end:
            self.has_moved = True
        partition.ends, partition.observed, partition.problem = ends, step, None
        partition.timeline.observe(ends.end, at_ms, *self._points)
        for _ in range(min(len(partition.fresh), FRESH_PER_STEP)):
            position = partition.fresh.popleft()
            if not position.is_fresh:
                continue
            if position.seen > step:
                # Read after the request for the end was sent: the next end is compared with it.
                partition.fresh.append(position)
            else:
                position.add_to_window(at_ms, ends)

    # -- the first unread records

    def take_wanted(self, count: int) -> list[GroupPosition]:
        """Positions whose first unread record is to be looked up, from `first` on.

        Each is followed by a call of `found` or `not_found`.
        """
        taken = list(islice(self._wanted, count))
        for position in taken:
            del self._wanted[position]
        return taken

    def found(self, position: GroupPosition, offset: int, found: FirstUnread, now_ms: int) -> None:
        """What was found from `offset` on, the `first` of the position at that time."""
        position.is_wanted = False
        if not position.offset <= offset <= position.first:
            # The group has committed another offset meanwhile.
            return
        position.scanned = max(found.offset, position.offset)
        position.found_at_ms = now_ms
        if found.timestamp_ms is not None:
            position.found = found

    def not_found(self, position: GroupPosition, now_ms: int) -> None:
        """A lookup failed."""
        position.is_wanted = False
        position.retry_ms = now_ms + RETRY_MS
