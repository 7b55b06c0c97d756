"""A log with one owner: its role and epoch, what is committed, acknowledgements, and asynchronous reads.

    stage ──▶ end of the turn: write ──▶ stored ──▶ replica core ──▶ high watermark
                                                                        │ the turn, afterwards
                                                                        ▼
                                              acknowledgements, then long polls

Data partitions, coordinator shards and the metadata log use this class alike. What is committed is decided by
the core that it drives (`runnel.replica`) and nowhere else; the log on disk only receives the result.

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
from runnel.broker.runtime.promise import Promise
from runnel.broker.runtime.turn import Turn, Watcher
from runnel.controller.values import INTERNAL_TOPICS
from runnel.model.errors import ApiError, ErrorCode, StorageFailed
from runnel.model.ids import TopicPartition
from runnel.ports.clock import Clock
from runnel.ports.disk import (
    BlockingRead,
    Disk,
    Origin,
    PartitionLog,
    Slice,
    Staged,
    TimestampedOffset,
)
from runnel.ports.service import Loan
from runnel.replica.follower import FollowerReplica
from runnel.replica.leader import LeaderReplica

logger = logging.getLogger("runnel.broker")

T = TypeVar("T")


class Ack(Protocol):
    """A waiter for everything below `end_offset` to be committed."""

    end_offset: int

    def committed(self) -> None: ...

    def failed(self, error: ApiError) -> None: ...


def _ignored(name: TopicPartition) -> None:
    """The default: ignore lost records."""


class ReplicatedLog:
    """One partition on this node, which it leads or follows."""

    __slots__ = (
        "_acks",
        "_clock",
        "_disk",
        "_is_queued",
        "_is_touched",
        "_outcomes",
        "_turn",
        "appended_bytes",
        "is_internal",
        "is_leader",
        "log",
        "name",
        "on_records_lost",
        "replica",
        "topic_id",
        "watchers",
    )

    def __init__(
        self,
        name: TopicPartition,
        topic_id: bytes,
        log: PartitionLog,
        replica: LeaderReplica | FollowerReplica,
        turn: Turn,
        disk: Disk,
        clock: Clock,
    ) -> None:
        self.name = name
        self.is_internal = name.topic in INTERNAL_TOPICS
        """Written by the broker only."""
        self.topic_id = topic_id
        self.log = log
        """The log on disk. Other classes may read it, but must not change it or commit records."""
        self.replica: LeaderReplica | FollowerReplica = FollowerReplica(replica.node, -1)
        self.is_leader = False
        self.watchers: dict[Watcher, None] = {}
        """Long polls on this log."""
        self.appended_bytes = 0
        """All bytes staged since start: lets a long poll compare with min.bytes."""
        self.on_records_lost: Callable[[TopicPartition], None] = _ignored
        """Called when this node leads and the disk lost records that were visible."""
        self._acks: deque[Ack] = deque()
        self._outcomes: deque[tuple[Ack, ApiError | None]] = deque()
        """Acknowledgements whose outcome is known, independently of the high watermark."""
        self._turn = turn
        self._disk = disk
        self._clock = clock
        self._is_touched = False
        self._is_queued = False
        log.on_truncated = self._truncated
        if isinstance(replica, LeaderReplica):
            self.become_leader(replica)
        else:
            self.become_follower(replica)

    # -- role and epoch

    @property
    def epoch(self) -> int:
        """The leader epoch that this node leads or follows in."""
        return self.replica.epoch

    def become_leader(self, replica: LeaderReplica) -> None:
        """Lead in a new epoch, with the local high watermark."""
        self._check_newer(replica.epoch)
        if self.log.leader_epoch < replica.epoch:
            self.log.begin_epoch(replica.epoch)
        replica.high_watermark = max(replica.high_watermark, self.high_watermark)
        self.replica = replica
        self.is_leader = True
        if self.log.config.acks_wait_for_disk:
            # Even if the rest cannot be synced.
            self._stored(self.log.durable_offset)
        self.commit_stored()

    def become_follower(self, replica: FollowerReplica) -> None:
        """Follow another leader in a new epoch, or none. Waiters fail, as their records may be lost."""
        self._check_newer(replica.epoch)
        replica.high_watermark = max(replica.high_watermark, self.high_watermark)
        self.replica = replica
        self._resign(f"{self.name} is led by another broker in epoch {replica.epoch}")

    def suspend(self) -> None:
        """Reject writes in this epoch; reads are served. `become_leader` ends it."""
        self._resign(f"{self.name} takes no writes before it is led in a new epoch")

    def close(self) -> None:
        """The partition is removed from this node."""
        self._resign(f"{self.name} is no longer on this broker")

    def truncate_to(self, offset: int) -> None:
        """As a follower: truncate what the leader does not have, never below the high watermark."""
        assert not self.is_leader, "a leader's log is the truth"
        assert isinstance(self.replica, FollowerReplica)
        self.replica.check_truncation(offset)
        self.log.truncate_to(offset)

    def check_leader_epoch(self, epoch: int) -> None:
        """Fence a client whose leader epoch is older or newer than ours; -1 is not checked."""
        own = self.replica.epoch
        if epoch in (-1, own):
            return
        error = ErrorCode.FENCED_LEADER_EPOCH if epoch < own else ErrorCode.UNKNOWN_LEADER_EPOCH
        raise ApiError(error, f"the request has leader epoch {epoch}, the leader of {self.name} is at {own}")

    def check_in_sync(self, replicas_min: int) -> None:
        """Reject a write with acks=all below min.insync.replicas."""
        if isinstance(self.replica, LeaderReplica):
            self.replica.check_in_sync(replicas_min)

    def _check_newer(self, epoch: int) -> None:
        if epoch < self.replica.epoch:
            raise ApiError(
                ErrorCode.FENCED_LEADER_EPOCH, f"{self.name} is in epoch {self.replica.epoch}, not {epoch}"
            )

    def _resign(self, reason: str) -> None:
        self.is_leader = False
        self._fail_above(-1, ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, reason))
        self._turn.wake(self.watchers)

    # -- what is committed

    @property
    def high_watermark(self) -> int:
        """Everything below is committed: it may be acknowledged and read."""
        return self.replica.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The last stable offset: the end for read_committed consumers."""
        return self.log.last_stable_offset

    def when_committed(self, ack: Ack) -> None:
        """Call `ack` at the end of the turn that commits everything below its end offset, or fails to."""
        if ack.end_offset <= self.replica.high_watermark:
            self._outcomes.append((ack, None))
            self._queue()
        elif self.is_leader:
            self._acks.append(ack)
        else:
            self._outcomes.append((ack, self._not_leader()))
            self._queue()

    def commit_stored(self) -> None:
        """Commit what is written, as far as the flush policy allows; after a failed sync, try again."""
        log = self.log
        if not log.config.acks_wait_for_disk:
            if self.replica.stored(log.written_offset):
                self._advanced()
        elif log.durable_offset < log.written_offset:
            self._disk.sync(log).add_done_callback(partial(self._synced, self.replica.epoch))
        else:
            self._stored(log.durable_offset)

    def follower_fetched(self, node: int, offset: int) -> None:
        """As the leader: a follower fetched from `offset`, so it has stored all records below."""
        assert isinstance(self.replica, LeaderReplica)
        if self.replica.fetched(node, offset):
            self._advanced()

    def isr_changed(self, isr: frozenset[int], proposed: frozenset[int] | None = None) -> None:
        """As the leader: the ISR has changed."""
        assert isinstance(self.replica, LeaderReplica)
        if self.replica.isr_changed(isr, proposed):
            self._advanced()

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
            self._advanced()

    def _advanced(self) -> None:
        self.log.advance_high_watermark(self.replica.high_watermark)
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
        if durable.cancelled() or epoch != self.replica.epoch:
            # In another epoch the log may have been truncated below what was synced.
            return
        failure = durable.exception()
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
        has_lost_visible = self.is_leader and end_offset < self.replica.high_watermark
        self.replica.truncated(end_offset)
        error = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name} was truncated to {end_offset}")
        self._fail_above(end_offset, error)
        self._turn.wake(self.watchers)
        if has_lost_visible:
            self.on_records_lost(self.name)

    def _fail_above(self, end_offset: int, error: ApiError) -> None:
        # A duplicate batch may wait out of order, so all are checked.
        acks = self._acks
        failed = [(ack, error) for ack in acks if ack.end_offset > end_offset]
        if failed:
            kept = [ack for ack in acks if ack.end_offset <= end_offset]
            acks.clear()
            acks.extend(kept)
            self._outcomes.extend(failed)
            self._queue()

    # -- writing

    def stage(self, records: memoryview, now_ms: int, origin: Origin = Origin.CLIENT) -> Staged:
        """Stage a batch for the end of the turn. The memory is borrowed until then. Raises ApiError."""
        if not self.is_leader:
            raise self._not_leader()
        staged = self.log.stage(records, self.replica.epoch, now_ms, origin)
        if staged.duplicate:
            self._duplicated(staged)
        else:
            self._touch(len(records))
        return staged

    def stage_all(self, batches: Sequence[memoryview], now_ms: int) -> list[Staged | ApiError]:
        """`stage` for several batches of clients; a rejected batch does not affect the others."""
        if not self.is_leader:
            return [self._not_leader()] * len(batches)
        outcomes = self.log.stage_all(batches, self.replica.epoch, now_ms)
        size_bytes = 0
        for records, outcome in zip(batches, outcomes, strict=True):
            if isinstance(outcome, Staged):
                if outcome.duplicate:
                    self._duplicated(outcome)
                else:
                    size_bytes += len(records)
        if size_bytes:
            self._touch(size_bytes)
        return outcomes

    def _touch(self, size_bytes: int) -> None:
        self.appended_bytes += size_bytes
        if not self._is_touched:
            self._is_touched = True
            self._turn.touch(self)

    def _duplicated(self, staged: Staged) -> None:
        if self.replica.high_watermark <= staged.last_offset < self.log.written_offset:
            # Its first sync may have failed, and nothing else would trigger another.
            self.commit_stored()

    def append_now(self, records: bytearray) -> Staged:
        """A coordinator's own batch: in the file on return, committed some time later. Raises ApiError."""
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

        Raises ApiError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED, or an error of the disk.
        """
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
            self._fail_above(self.log.end_offset, error)
        else:
            self.commit_stored()

    def _written(self, loan: Loan, error: ApiError | None) -> None:
        loan.done()
        if error is not None:
            self._fail_above(self.log.end_offset, error)
        else:
            self.commit_stored()

    def _not_leader(self) -> ApiError:
        return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {self.name}")

    # -- reading: what is not in memory or in the page cache is loaded by a thread

    def read(
        self, offset: int, max_bytes: int, end_offset: int, *, at_least_one: bool, may_block: bool = False
    ) -> Slice:
        """Whole batches from the one that holds `offset`, below `end_offset`. Else OFFSET_OUT_OF_RANGE.

        Raises NotResident where that would wait for the disk; the caller has `load` bring it into reach.
        """
        return self.log.read(offset, max_bytes, end_offset, at_least_one=at_least_one, may_block=may_block)

    def load(self, read: BlockingRead[T]) -> Promise[T]:
        """Run a read that may wait for the disk in a thread."""
        promise: Promise[T] = Promise()

        def done(result: "Future[T]") -> None:
            if result.cancelled():
                promise.fail(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the broker is stopping"))
                return
            error = result.exception()
            if error is None:
                promise.resolve(result.result())
            elif isinstance(error, Exception):
                promise.fail(error)
            else:
                raise error

        self._disk.run_blocking(read).add_done_callback(done)
        return promise

    def read_batches(self, offset: int, max_bytes: int) -> Promise[Sequence[memoryview]]:
        """Batches from the one that holds `offset` to the end of the log, for replay; at least one if any."""
        return self.load(self.log.read_batches(offset, max_bytes, self.log.written_offset))

    def find_timestamp(self, timestamp_ms: int, end_offset: int) -> Promise[TimestampedOffset | None]:
        """The first record below `end_offset` whose timestamp is at least this."""
        return self.load(self.log.find_timestamp(timestamp_ms, end_offset))

    def find_max_timestamp(self, end_offset: int) -> Promise[TimestampedOffset | None]:
        """The first of the records below `end_offset` that have the largest timestamp."""
        return self.load(self.log.find_max_timestamp(end_offset))
