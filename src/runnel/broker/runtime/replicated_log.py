"""A log with one owner: its role and epoch, what is committed, acknowledgements, and asynchronous reads.

    stage ──▶ end of the turn: write ──▶ stored ──▶ replica core ──▶ high watermark
                                                                        │ the turn, afterwards
                                                                        ▼
                                              acknowledgements, then long polls

Data partitions, coordinator shards and the metadata log use this class alike. What is committed is decided by
the core that it drives (`runnel.replica`, `runnel.raft`) and nowhere else; the log on disk only receives the
result.

Acknowledgements are never called from within a change of the high watermark: the log puts itself into the
turn's queue, and the turn calls `acknowledge`. So a continuation may safely stage and write batches.
"""

import logging
from asyncio import Future
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from runnel.batch.control import EndMarker, build_end_marker
from runnel.broker.runtime.acks import Ack, ReplicatedAck
from runnel.broker.runtime.copied_log import CopiedLog
from runnel.broker.runtime.deduplication import Deduplication
from runnel.broker.runtime.turn import Turn, Watcher
from runnel.controller.values import INTERNAL_TOPICS
from runnel.model.errors import ApiError, ErrorCode, StorageFailed
from runnel.model.ids import NO_BROKER_EPOCH, TopicPartition
from runnel.model.log_config import LogConfig
from runnel.observe.counters import TopicTraffic
from runnel.ports.clock import Clock
from runnel.ports.disk import (
    Disk,
    Origin,
    PartitionLog,
    Staged,
)
from runnel.ports.service import Loan
from runnel.replica.follower import FollowerReplica
from runnel.replica.leader import FetchTime, LeaderReplica
from runnel.replica.replica import Replica

logger = logging.getLogger("runnel.broker")

T = TypeVar("T")


def _ignored(name: TopicPartition) -> None:
    """The default: nothing else depends on this log."""


def _undamaged(partition: "ReplicatedLog", reason: str) -> None:
    """The default: no other node has these records."""


class Cursor(Protocol):
    """The position of a follower that fetches from this log."""

    def changed(self, *, wakes: bool) -> None:
        """The log or its high watermark has changed; with `wakes`, a waiting fetch is answered soon."""
        ...


class ReplicatedLog(CopiedLog):
    """One partition on this node, which it leads or follows."""

    __slots__ = (
        "_acks",
        "_is_queued",
        "_is_touched",
        "_outcomes",
        "_stored_acks",
        "_turn",
        "cursors",
        "dedup",
        "has_followers",
        "is_internal",
        "on_damaged",
        "on_records_lost",
        "on_role_changed",
        "takes_writes",
        "topic_id",
        "watchers",
    )

    def __init__(
        self,
        name: TopicPartition,
        topic_id: bytes,
        log: PartitionLog,
        replica: Replica,
        turn: Turn,
        disk: Disk,
        clock: Clock,
        traffic: TopicTraffic | None = None,
    ) -> None:
        unassigned = FollowerReplica(replica.node, -1, high_watermark=log.high_watermark)
        super().__init__(name, log, disk, unassigned, clock, traffic or TopicTraffic())
        self.is_internal = name.topic in INTERNAL_TOPICS
        """Written by the broker only."""
        self.topic_id = topic_id
        self.has_followers = False
        """Does this node lead, and do others follow? Otherwise what is stored is committed."""
        self.takes_writes = False
        """Does this node lead, and is it not isolated?"""
        self.dedup: Deduplication | None = None
        """The idempotency keys, while this node leads and the topic has `dedup.window.ms`."""
        self.watchers: dict[Watcher, None] = {}
        """Long polls on this log."""
        self.cursors: dict[Cursor, None] = {}
        """Followers that fetch from this log."""
        self.on_records_lost: Callable[[TopicPartition], None] = _ignored
        """Called when the disk lost records that were committed."""
        self.on_damaged: Callable[[ReplicatedLog, str], None] = _undamaged
        """Called when records turn out to be corrupt or missing, with what was found."""
        self.on_role_changed: Callable[[TopicPartition], None] = _ignored
        """Called after this node began or ceased to lead, and when it leads in another epoch."""
        self._acks: deque[Ack] = deque()
        self._stored_acks: deque[Ack] = deque()
        """Waiters with acks=1, for the leader alone."""
        self._outcomes: deque[tuple[Ack, ApiError | None]] = deque()
        """Acknowledgements whose outcome is known, independently of the high watermark."""
        self._turn = turn
        self._is_touched = False
        self._is_queued = False
        log.on_truncated = self._truncated
        if isinstance(replica, LeaderReplica):
            self.become_leader(replica)
        else:
            self.become_follower(replica)

    # -- role and epoch

    def become_leader(self, replica: Replica) -> None:
        """Lead in a new epoch, with the local high watermark."""
        self._check_newer(replica.epoch)
        assert not self.is_changing, "the end of the log is where the epoch begins"
        if self.log.leader_epoch < replica.epoch:
            self.log.begin_epoch(replica.epoch)
        self._replace(replica)
        self.is_leader = self.takes_writes = True
        if isinstance(replica, LeaderReplica):
            replica.epoch_start = self.log.end_offset
            replica.isr_min = self.log.config.min_insync_replicas
            self.has_followers = bool(replica.followers)
        if self.log.config.acks_wait_for_disk:
            # Even if the rest cannot be synced.
            self._stored(self.log.durable_offset)
        self._configure_dedup()
        self.commit_stored()
        self.on_role_changed(self.name)

    def become_follower(self, replica: Replica) -> None:
        """Follow another leader in a new epoch, or none. Waiters fail, as their records may be lost."""
        self._check_newer(replica.epoch)
        assert not self.is_changing, "what is fetched next follows the end of the log"
        self._replace(replica)
        self._resign(f"{self.name} is led by another broker in epoch {replica.epoch}")

    def suspend(self) -> None:
        """Reject writes in this epoch; reads are served. `become_leader` ends it."""
        self._resign(f"{self.name} takes no writes before it is led in a new epoch")

    def close(self) -> None:
        """The partition is removed from this node."""
        self._resign(f"{self.name} is no longer on this broker")

    @property
    def is_isolated(self) -> bool:
        """Does this node lead, as far as it knows, and may have been replaced?"""
        return self.is_leader and not self.takes_writes

    def isolate(self, is_isolated: bool) -> None:
        """As the leader: reject writes while this node may have been replaced, or accept them again.

        Producers that wait find the new leader; whether their records are kept is decided by it. Writes of
        coordinators wait: they are lost only with the leadership.
        """
        assert self.is_leader
        if is_isolated == self.is_isolated:
            return
        self.takes_writes = not is_isolated
        if is_isolated:
            waiting = [ack for ack in self._acks if isinstance(ack, ReplicatedAck)]
            self._acks = deque(ack for ack in self._acks if not isinstance(ack, ReplicatedAck))
            self._outcomes.extend((ack, self._not_leader()) for ack in waiting)
            self._queue()

    def configure(self, config: LogConfig) -> None:
        """The settings of the topic have changed."""
        self.log.configure(config)
        if isinstance(self.replica, LeaderReplica):
            self.replica.isr_min = config.min_insync_replicas
            if self.has_followers:
                self.commit_stored()
        self._configure_dedup()

    def _configure_dedup(self) -> None:
        is_wanted = self.is_leader and not self.is_internal and self.log.config.dedup_window_ms > 0
        if not is_wanted:
            if self.dedup is not None:
                self.dedup.close()
                self.dedup = None
        elif self.dedup is None:
            self.dedup = Deduplication(self, self._clock)
        else:
            self.dedup.configured()

    def check_leader_epoch(self, epoch: int) -> None:
        """Fence a client whose leader epoch is older or newer than ours; -1 is not checked."""
        own = self.replica.epoch
        if epoch in (-1, own):
            return
        error = ErrorCode.FENCED_LEADER_EPOCH if epoch < own else ErrorCode.UNKNOWN_LEADER_EPOCH
        raise ApiError(error, f"the request has leader epoch {epoch}, the leader of {self.name} is at {own}")

    def check_leader(self) -> None:
        """Reject a request that only the leader may answer; it is also served while writes are rejected."""
        if isinstance(self.replica, FollowerReplica):
            raise self._not_leader()

    def check_in_sync(self) -> None:
        """Reject a write with acks=all below min.insync.replicas."""
        if self.has_followers:
            self.leader.check_in_sync()

    @property
    def leader(self) -> LeaderReplica:
        """The core of this partition while this node leads it. Raises NOT_LEADER_OR_FOLLOWER."""
        if not self.is_leader or not isinstance(self.replica, LeaderReplica):
            raise self._not_leader()
        return self.replica

    def _replace(self, replica: Replica) -> None:
        known, self.replica = self.replica.high_watermark, replica
        if replica.high_watermark < known:
            replica.high_watermark = known
        elif replica.high_watermark > known:
            self.advance()

    def _check_newer(self, epoch: int) -> None:
        if epoch < self.replica.epoch:
            raise ApiError(
                ErrorCode.FENCED_LEADER_EPOCH, f"{self.name} is in epoch {self.replica.epoch}, not {epoch}"
            )

    def _resign(self, reason: str) -> None:
        self.is_leader = self.takes_writes = self.has_followers = False
        self._configure_dedup()
        self._fail_above(-1, ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, reason))
        self._turn.wake(self.watchers)
        self.notify_followers(wakes=True)
        self.on_role_changed(self.name)

    # -- what is committed

    @property
    def last_stable_offset(self) -> int:
        """The last stable offset: the end for read_committed consumers."""
        return self.log.last_stable_offset

    def when_committed(self, ack: Ack) -> None:
        """Call `ack` once everything below its end offset is committed, or cannot be."""
        if ack.end_offset <= self.replica.high_watermark:
            self._outcomes.append((ack, None))
            self._queue()
        elif self.is_leader:
            self._acks.append(ack)
        else:
            self._outcomes.append((ack, self._not_leader()))
            self._queue()

    def when_replicated(self, ack: Ack, timeout_ms: int) -> None:
        """`when_committed` for a producer with acks=all; REQUEST_TIMED_OUT if followers are slow."""
        if self.has_followers:
            deadline_ms = self._clock.monotonic_ms() + timeout_ms
            ack = ReplicatedAck(ack, self.leader, deadline_ms)
        self.when_committed(ack)

    def when_stored(self, ack: Ack) -> None:
        """Call `ack` when this node has stored everything below its end offset: for acks=1."""
        if not self.has_followers:
            self.when_committed(ack)
        elif ack.end_offset <= self.leader.end_offset:
            self._outcomes.append((ack, None))
            self._queue()
        else:
            self._stored_acks.append(ack)

    @property
    def has_waiters(self) -> bool:
        """Does anything wait for records to be committed?"""
        return bool(self._acks)

    def expire_acks(self, now_ms: int) -> None:
        """Time has passed: fail producers that do not wait any longer."""
        expired = [ack for ack in self._acks if isinstance(ack, ReplicatedAck) and ack.deadline_ms <= now_ms]
        for ack in expired:
            self._acks.remove(ack)
            ack.expire()

    def commit_stored(self) -> None:
        """Commit what is written, as far as the flush policy allows; after a failed sync, try again."""
        log = self.log
        if self.cursors:
            self.notify_followers(wakes=True)
        if not log.config.acks_wait_for_disk:
            self._stored(log.written_offset)
        elif log.durable_offset < log.written_offset:
            self._disk.sync(log).add_done_callback(partial(self._synced, self.replica.epoch))
        else:
            self._stored(log.durable_offset)

    def follower_fetched(
        self,
        node: int,
        offset: int,
        *,
        log_start_offset: int = -1,
        broker_epoch: int = NO_BROKER_EPOCH,
        fetch_time: FetchTime | None = None,
    ) -> None:
        """As the leader: a follower fetched from `offset`, so it has stored all records below."""
        now_ms = self._clock.monotonic_ms()
        if self.leader.fetched(
            node,
            offset,
            now_ms,
            log_start_offset=log_start_offset,
            broker_epoch=broker_epoch,
            fetch_time=fetch_time,
        ):
            self.advance()

    def changed(self, replicas: frozenset[int], isr: frozenset[int], partition_epoch: int) -> None:
        """As the leader: the metadata has another state of the partition in this epoch."""
        if self.leader.changed(replicas, isr, partition_epoch):
            self.advance()
        self.has_followers = bool(self.leader.followers)

    def acknowledge(self) -> None:
        """Called by the turn: complete waiters after the high watermark advanced or a write failed."""
        self._is_queued = False
        outcomes, acks = self._outcomes, self._acks
        while outcomes:
            ack, error = outcomes.popleft()
            try:
                if error is None:
                    ack.committed()
                else:
                    ack.failed(error)
            except Exception:
                logger.exception("%s: an acknowledgement failed", self.name)
        stored_acks = self._stored_acks
        while stored_acks and stored_acks[0].end_offset <= self.leader.end_offset:
            try:
                stored_acks.popleft().committed()
            except Exception:
                logger.exception("%s: an acknowledgement failed", self.name)
        # Read again for each: a waiter may advance it.
        while acks and acks[0].end_offset <= self.replica.high_watermark:
            try:
                acks.popleft().committed()
            except Exception:
                logger.exception("%s: an acknowledgement failed", self.name)
        if self.watchers:
            self._turn.wake(self.watchers)

    def _stored(self, end_offset: int) -> None:
        if self.replica.stored(end_offset):
            self.advance()
        if self._stored_acks:
            self._queue()

    def notify_followers(self, *, wakes: bool) -> None:
        """The log or its high watermark has changed: update the cursors of followers."""
        for cursor in self.cursors:
            cursor.changed(wakes=wakes)

    def advance(self) -> None:
        """The replica core has moved the high watermark: make it visible, acknowledge later."""
        self.log.advance_high_watermark(self.replica.high_watermark)
        if self.cursors:
            # It is sent with the next records.
            self.notify_followers(wakes=False)
        if self._acks or self.watchers:
            self._queue()

    def _queue(self) -> None:
        if not self._is_queued:
            self._is_queued = True
            turn = self._turn
            turn.settled.append(self)
            if not turn.is_open:
                turn.schedule()

    def _synced(self, epoch: int, durable: "Future[int]") -> None:
        if durable.cancelled():
            return
        failure = durable.exception()
        if epoch != self.replica.epoch:
            # In another epoch the log may have been truncated below what was synced, or while it was.
            return
        if failure is None:
            self._stored(durable.result())
        else:
            # The bytes may or may not be durable: they stay uncommitted, and their producers receive an
            # error.
            error = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
            self._fail_above(self.replica.high_watermark, error)

    def _truncated(self) -> None:
        """The log on disk was truncated."""
        end_offset = self.log.written_offset
        # Not if a follower truncates what its leader does not have, nor if a new epoch is due anyway.
        is_loss = self.is_leader or (isinstance(self.replica, FollowerReplica) and not self.is_truncating)
        has_lost_visible = is_loss and end_offset < self.replica.high_watermark
        self.replica.truncated(end_offset)
        if isinstance(self.replica, FollowerReplica):
            # It was restarted at a later offset, or this changes nothing.
            self.replica.committed(self.log.high_watermark, end_offset)
        if self.dedup is not None:
            self.dedup.truncated(end_offset)
        error = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name} was truncated to {end_offset}")
        self._fail_above(end_offset, error)
        self._turn.wake(self.watchers)
        if has_lost_visible:
            self.on_records_lost(self.name)

    def _fail_above(self, end_offset: int, error: ApiError) -> None:
        # A duplicate batch may wait out of order, so all are checked.
        for acks in (self._acks, self._stored_acks):
            failed = [(ack, error) for ack in acks if ack.end_offset > end_offset]
            if failed:
                kept = [ack for ack in acks if ack.end_offset <= end_offset]
                acks.clear()
                acks.extend(kept)
                self._outcomes.extend(failed)
                self._queue()

    def damaged(self, reason: str) -> None:
        """Records turned out to be corrupt or missing."""
        self.on_damaged(self, reason)

    # -- writing

    def stage(self, records: memoryview, now_ms: int, origin: Origin = Origin.CLIENT) -> Staged:
        """Stage a batch for the end of the turn. The memory is borrowed until then. Raises ApiError."""
        if not self.takes_writes:
            raise self._not_leader()
        staged = (self.dedup or self.log).stage(records, self.replica.epoch, now_ms, origin)
        if staged.duplicate:
            self._duplicated(staged)
        else:
            delta = staged.last_offset - staged.base_offset
            traffic = self.traffic
            traffic.records_in += delta + 1
            traffic.batches[delta.bit_length()] += 1
            self._touch(len(records))
        return staged

    def stage_all(self, batches: Sequence[memoryview], now_ms: int) -> list[Staged | ApiError]:
        """`stage` for several batches of clients; a rejected batch does not affect the others."""
        if not self.takes_writes:
            return [self._not_leader()] * len(batches)
        outcomes = (self.dedup or self.log).stage_all(batches, self.replica.epoch, now_ms)
        size_bytes = count = 0
        for records, outcome in zip(batches, outcomes, strict=True):
            if isinstance(outcome, Staged):
                if outcome.duplicate:
                    self._duplicated(outcome)
                else:
                    size_bytes += len(records)
                    count += 1
        if count:
            self._count(outcomes, count)
            self._touch(size_bytes)
        return outcomes

    def _count(self, outcomes: list[Staged | ApiError], count: int) -> None:
        """Count the batches that were staged, and their records."""
        traffic, first, last = self.traffic, outcomes[0], outcomes[-1]
        if (
            count == len(outcomes)
            and isinstance(first, Staged)
            and isinstance(last, Staged)
            and last.last_offset - first.base_offset == count - 1
        ):
            # Most small batches have one record.
            traffic.records_in += count
            traffic.batches[0] += count
            return
        for outcome in outcomes:
            if isinstance(outcome, Staged) and not outcome.duplicate:
                delta = outcome.last_offset - outcome.base_offset
                traffic.records_in += delta + 1
                traffic.batches[delta.bit_length()] += 1

    def _touch(self, size_bytes: int) -> None:
        self.appended_bytes += size_bytes
        self.traffic.bytes_in += size_bytes
        if not self._is_touched:
            self._is_touched = True
            self._turn.touch(self)

    def _duplicated(self, staged: Staged) -> None:
        self.traffic.duplicates += 1
        if self.replica.high_watermark <= staged.last_offset < self.log.written_offset:
            # Its first sync may have failed, and nothing else would trigger another.
            self.commit_stored()

    def append_now(self, records: bytearray) -> Staged:
        """A coordinator's own batch: in the file on return, committed some time later. Raises ApiError.

        As with acks=all, NOT_ENOUGH_REPLICAS below min.insync.replicas.
        """
        self.check_in_sync()
        staged = self.stage(memoryview(records), self._clock.now_ms(), Origin.COORDINATOR)
        self.write()
        if self.log.written_offset <= staged.last_offset:
            raise StorageFailed(f"{self.name} could not be written")
        return staged

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        is_commit: bool,
        now_ms: int,
        transaction_version: int,
    ) -> Staged:
        """End a producer's transaction here: in the file on return, committed some time later.

        Raises ApiError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED, NOT_LEADER_OR_FOLLOWER,
        NOT_ENOUGH_REPLICAS, or an error of the disk.
        """
        if not self.is_leader:
            # The producer state of a follower may be behind, and gives no reason to reject a marker.
            raise self._not_leader()
        self.log.check_marker(producer_id, producer_epoch, transaction_version)
        marker = build_end_marker(
            EndMarker(is_commit, coordinator_epoch),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp_ms=now_ms,
        )
        return self.append_now(marker)

    def write(self, loan: Loan | None = None) -> None:
        """The end of the turn: put what is staged into the file; commit it if the flush policy allows.

        Large writes are done in the background if a loan keeps their memory.
        """
        if not self._is_touched:
            # A coordinator wrote before the end of the turn; a second sync would be wasted.
            return
        self._is_touched = False
        if loan is not None:
            loan.borrow()
            if self.log.write_later(partial(self._written, loan)):
                return
            loan.done()
        try:
            self.log.write_staged()
        except ApiError as error:
            self._write_failed(error)
        else:
            self.commit_stored()

    def _written(self, loan: Loan, error: ApiError | None) -> None:
        loan.done()
        if error is not None:
            self._write_failed(error)
        else:
            self.commit_stored()

    def _write_failed(self, error: ApiError) -> None:
        end_offset = self.log.end_offset
        if isinstance(self.replica, LeaderReplica):
            # The epoch may have begun while this was to be written.
            self.replica.epoch_start = min(self.replica.epoch_start, end_offset)
        if self.dedup is not None:
            self.dedup.truncated(end_offset)
        self._fail_above(end_offset, error)
        self.check_damage(error)

    def _not_leader(self) -> ApiError:
        reason = (
            f"another broker may lead {self.name} by now"
            if self.is_leader
            else f"this broker does not lead {self.name}"
        )
        return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, reason)
