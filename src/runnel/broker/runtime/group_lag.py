"""Samples the lag of the groups of this coordinator: commits first, then the ends of their partitions.

    every second ──▶ commits of all loaded shards ──▶ ends of partitions led here
                                                  ├──▶ ends of others: ListOffsets to their leaders
                                                  └──▶ first unread records, where they have to be read

The state is in memory only. A new coordinator of a group begins without it: the age of a record that was
appended before is taken from its timestamp. A broker that coordinates no groups samples nothing; while
nothing moves, it does so every five seconds.
"""

import asyncio
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from runnel.batch.header import read_header
from runnel.broker.runtime.promise import settled
from runnel.broker.runtime.remote_ends import RemoteEnds, scan
from runnel.broker.runtime.replicated_log import ReplicatedLog
from runnel.model.errors import ApiError
from runnel.model.ids import NO_LEADER
from runnel.observe.lag.families import LagFamilies
from runnel.observe.lag.first_unread import FirstUnread
from runnel.observe.lag.lag import Now
from runnel.observe.lag.partitions import Ends, GroupPosition, ObservedPartition
from runnel.observe.lag.report import GroupFacts, GroupLag, evaluation, json_of, page
from runnel.observe.lag.tracker import LagTracker, Offsets
from runnel.observe.metrics import Family
from runnel.ports.clock import TimerHandle
from runnel.ports.peers import PeerFailed

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker
    from runnel.broker.runtime.group_coordinator import GroupCoordinator, GroupDriver

INTERVAL_MS = 1000
IDLE_INTERVAL_MS = 5000
IDLE_ROUNDS = 10
"""Rounds in which nothing has moved, after which they are less frequent."""

PARTITIONS_PER_SLICE = 500
"""Ends of partitions that are read at a time, in one or two milliseconds; new commits count as well."""

LOOKUPS_MAX = 50
"""First unread records that are being read at a time; each is a read of a thread or a fetch."""
READ_BYTES = 1 << 20
"""Bytes that one such read covers."""

NO_TOPIC = "the topic does not exist"

Query: TypeAlias = Mapping[str, Sequence[str]]
Answer: TypeAlias = tuple[int, str, Iterator[bytes]]
"""Status, content type and body of a response of the admin listener."""


class GroupLags:
    """The lag of the groups of this coordinator."""

    def __init__(self, broker: "Broker", groups: "GroupCoordinator") -> None:
        self._broker = broker
        self._groups = groups
        self.tracker = LagTracker()
        self._remote = RemoteEnds(broker, self.tracker)
        self._timer: TimerHandle | None = None
        self._is_sampling = self._is_stopped = False
        self._still = 0
        """The number of rounds in which nothing has moved."""
        self._lookups = 0
        """The number of records that are being looked up."""

    # -- rounds

    def wake(self) -> None:
        """A shard was loaded: begin to sample, unless that has begun."""
        if self._timer is None and not self._is_sampling and not self._is_stopped:
            self._timer = self._broker.timers.call_later(INTERVAL_MS, self._start_round)

    def stop(self) -> None:
        """Sample no more."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start_round(self) -> None:
        self._timer = None
        if not self._is_stopped:
            self._is_sampling = True
            self._broker.run(self._round())

    async def _round(self) -> None:
        try:
            self.tracker.has_moved = False
            await self.sample()
        except Exception as bug:  # noqa: BLE001 - reported; sampling must not end
            self._broker.bugs.report(bug, "the lag of groups could not be sampled")
        self._is_sampling = False
        self._still = 0 if self.tracker.has_moved else self._still + 1
        if not self._is_stopped and self._groups.has_shards:
            is_idle = self._still >= IDLE_ROUNDS
            delay_ms = IDLE_INTERVAL_MS if is_idle else INTERVAL_MS
            self._timer = self._broker.timers.call_later(delay_ms, self._start_round)

    async def sample(self) -> None:
        """One round. The answers of other leaders, and of lookups, arrive later."""
        now_ms = self._broker.clock.monotonic_ms()
        for _ in self.tracker.read_commits(self._commits(), now_ms):
            await asyncio.sleep(0)
        remote: dict[int, list[ObservedPartition]] = {}
        for partitions in _slices(self.tracker.partitions.values()):
            self._observe(partitions, remote)
            await asyncio.sleep(0)
        if self._is_stopped:
            return
        self._remote.observe(remote)
        for position in self.tracker.take_wanted(LOOKUPS_MAX - self._lookups):
            self._lookups += 1
            self._broker.run(self._look_up(position))

    def _commits(self) -> Iterator[tuple[str, Offsets]]:
        for driver in self._groups.served():
            # Other requests are served in between.
            for group_id, offsets in list(driver.shard.offsets.groups()):
                yield group_id, offsets.committed

    def _observe(
        self, partitions: list[ObservedPartition], remote: dict[int, list[ObservedPartition]]
    ) -> None:
        """Read the ends of partitions that are led here; the others are added to those of their leaders."""
        now_ms, step = self._broker.clock.monotonic_ms(), self.tracker.next_step()
        logs = self._broker.partition_at
        for partition in partitions:
            log = logs.get((partition.topic, partition.index))
            if log is None or not log.is_leader:
                self._find_leader(partition, remote)
                continue
            self._check_topic(partition, log.topic_id)
            partition.is_remote, partition.is_compacted = False, log.log.config.cleanup_compact
            if log.is_isolated or (log.has_followers and not log.leader.has_committed_in_epoch):
                # The high watermark is not known, or not the newest one.
                continue
            ends = Ends(log.high_watermark, log.last_stable_offset, log.log.log_start_offset)
            self.tracker.observe(partition, ends, step, now_ms)

    def _find_leader(self, partition: ObservedPartition, remote: dict[int, list[ObservedPartition]]) -> None:
        topic = self._broker.metadata.image.topics.get(partition.topic)
        if topic is None or partition.index >= len(topic.partitions):
            partition.forget()
            partition.problem = NO_TOPIC
            return
        self._check_topic(partition, topic.id)
        leader = topic.partitions[partition.index].leader
        if leader not in (NO_LEADER, self._broker.node_id):
            partition.is_remote = True
            remote.setdefault(leader, []).append(partition)

    @staticmethod
    def _check_topic(partition: ObservedPartition, topic_id: bytes) -> None:
        if partition.topic_id != topic_id:
            if any(partition.topic_id):
                partition.forget()
            partition.topic_id = topic_id

    # -- first unread records

    async def _look_up(self, position: GroupPosition) -> None:
        """Find the first unread record of a group in a partition."""
        tracker, clock = self.tracker, self._broker.clock
        offset = position.first
        partition = position.partition
        try:
            log = self._broker.partition_at.get((partition.topic, partition.index))
            if log is not None and log.is_leader:
                found = await self._read(log, offset, position)
            else:
                found = await self._remote.first_unread(position, offset)
        except (ApiError, PeerFailed):
            tracker.not_found(position, clock.monotonic_ms())
        except Exception as bug:  # noqa: BLE001 - reported; others are looked up
            self._broker.bugs.report(bug, "the first unread record of %s was not found", partition.topic)
            tracker.not_found(position, clock.monotonic_ms())
        else:
            tracker.found(position, offset, found, clock.monotonic_ms())
        finally:
            self._lookups -= 1

    async def _read(self, log: ReplicatedLog, offset: int, position: GroupPosition) -> FirstUnread:
        start, end = max(offset, log.log.log_start_offset), position.readable_end
        if start >= end:
            return FirstUnread(start, None)
        batches = await settled(log.load(log.log.read_batches(start, READ_BYTES, end)))
        if not batches:
            return FirstUnread(end, None)
        until = min(read_header(batches[-1]).next_offset, end)
        aborted = [] if position.group.reads_uncommitted else await log.aborted_transactions(start, until)
        return await scan(self._broker.disk, batches, start, aborted)

    # -- what is reported

    def collect(self) -> Iterator[Family | None]:
        """The lag of all groups as metrics."""
        count = self.tracker.position_count
        return LagFamilies(self._ids(), self.evaluate, count).families()

    def answer(self, query: Query) -> Answer:
        """`GET /lag`: the groups that the query asks for, as far as this broker coordinates them."""
        try:
            shown = page(self._ids(), query)
        except ValueError as error:
            return 400, "text/plain; charset=utf-8", iter([f"{error}\n".encode()])
        broker = self._broker
        head = {
            "as_of_ms": broker.clock.now_ms(),
            "cluster_id": broker.cluster_id,
            "node_id": broker.node_id,
        }
        return 200, "application/json", json_of(shown, self.evaluate, head)

    def evaluate(self, group_id: str) -> Generator[None, None, GroupLag | None]:
        """The lag of a group, in slices; None if it is not here."""
        facts = self._facts(group_id)
        if facts is None:
            return None
        clock = self._broker.clock
        now = Now(clock.monotonic_ms(), clock.now_ms())
        return (yield from evaluation(facts, self.tracker.groups.get(group_id), now))

    def _ids(self) -> list[str]:
        return [group_id for driver in self._groups.served() for group_id in driver.shard.group_ids()]

    def _facts(self, group_id: str) -> GroupFacts | None:
        driver = self._driver(group_id)
        summary = None if driver is None else driver.shard.summary(group_id)
        return None if summary is None else GroupFacts(group_id, *summary)

    def _driver(self, group_id: str) -> "GroupDriver | None":
        try:
            return self._groups.driver_of(group_id)
        except ApiError:
            return None


def _slices(partitions: Iterable[ObservedPartition]) -> list[list[ObservedPartition]]:
    slices: list[list[ObservedPartition]] = []
    room = 0
    for partition in partitions:
        if room <= 0:
            slices.append([])
            room = PARTITIONS_PER_SLICE
        slices[-1].append(partition)
        room -= 1 + len(partition.fresh)
    return slices
