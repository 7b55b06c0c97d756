"""A partition that this node leads: its log, its leader core, and whoever waits to commit or to read."""

from asyncio import Future
from collections import deque
from functools import partial
from typing import Protocol

from runnel.batch.control import EndMarker, build_end_marker
from runnel.broker.runtime.turn import Turn, Watcher
from runnel.controller.values import INTERNAL_TOPICS
from runnel.model.errors import ApiError, ErrorCode, StorageFailed
from runnel.model.ids import TopicPartition
from runnel.ports.clock import Clock
from runnel.ports.disk import Disk, Origin, PartitionLog, Staged
from runnel.ports.service import Loan
from runnel.replica.leader import LeaderReplica


class Ack(Protocol):
    """Somebody who waits until everything below `end_offset` is committed."""

    end_offset: int

    def committed(self) -> None: ...

    def failed(self, error: ApiError) -> None: ...


class Partition:
    """One partition led here. Everything that is staged is written by the turn and acknowledged by offset."""

    __slots__ = (
        "_acks",
        "_clock",
        "_disk",
        "_is_touched",
        "_turn",
        "appended_bytes",
        "is_internal",
        "leader",
        "log",
        "name",
        "topic_id",
        "watchers",
    )

    def __init__(
        self,
        name: TopicPartition,
        topic_id: bytes,
        log: PartitionLog,
        leader: LeaderReplica,
        turn: Turn,
        disk: Disk,
        clock: Clock,
    ) -> None:
        self.name = name
        self.is_internal = name.topic in INTERNAL_TOPICS
        """Written by the broker only."""
        self.topic_id = topic_id
        self.log = log
        self.leader = leader
        self.watchers: dict[Watcher, None] = {}
        """Long polls on this partition."""
        self.appended_bytes = 0
        """All bytes staged since start: how much a long poll may hope for."""
        self._acks: deque[Ack] = deque()
        self._turn = turn
        self._disk = disk
        self._clock = clock
        self._is_touched = False
        if log.config.acks_wait_for_disk:
            # Also if the disk now refuses to sync the rest.
            self._stored(log.durable_offset)
        self._commit_what_is_stored()

    @property
    def high_watermark(self) -> int:
        """Everything below is committed: it may be acknowledged and read."""
        return self.leader.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """What a read_committed reader may see: nothing from the first unfinished transaction on."""
        return self.log.last_stable_offset

    def stage(self, records: memoryview, now_ms: int, origin: Origin = Origin.CLIENT) -> Staged:
        """Line a batch up for the end of the turn. The memory is borrowed until then. Raises ApiError."""
        staged = self.log.stage(records, self.leader.epoch, now_ms, origin)
        if not staged.duplicate:
            self.appended_bytes += len(records)
            if not self._is_touched:
                self._is_touched = True
                self._turn.touch(self)
        elif self.leader.high_watermark <= staged.last_offset < self.log.written_offset:
            # Its first sync may have failed, and nothing else would bring about another.
            self._commit_what_is_stored()
        return staged

    def when_committed(self, ack: Ack) -> None:
        """Tell `ack` once everything below its end offset is committed, or that it never will be."""
        if ack.end_offset <= self.leader.high_watermark:
            if ack.end_offset <= self.log.written_offset:
                ack.committed()
                return
            # Healing after a failed sync had to cut the log: these offsets stand for other records now.
            self.leader.lost(self.log.written_offset)
        self._acks.append(ack)

    def commit_again(self) -> None:
        """Try once more to commit what is written: after a failed sync nothing else may bring one about."""
        self._commit_what_is_stored()

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

        Raises ApiError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED, or what the disk says.
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
        """The end of the turn: put what is staged into the file; commit it if the flush policy lets us.

        Much at once is written in the background if its memory is lent for so long.
        """
        if not self._is_touched:
            # A coordinator did not wait for the end of the turn; a second sync would be for nothing.
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
            return
        self._commit_what_is_stored()

    def _written(self, loan: Loan, error: ApiError | None) -> None:
        loan.done()
        if error is not None:
            self._fail_above(self.log.end_offset, error)
        else:
            self._commit_what_is_stored()

    def close(self) -> None:
        """The partition is gone from this node: whoever waits is told so."""
        gone = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.name} is no longer here")
        self._fail_above(-1, gone)
        self._turn.wake(self.watchers)

    def _commit_what_is_stored(self) -> None:
        if not self.log.config.acks_wait_for_disk:
            self._stored(self.log.written_offset)
        elif self.log.durable_offset < self.log.written_offset:
            self._disk.sync(self.log).add_done_callback(self._synced)
        else:
            self._stored(self.log.durable_offset)

    def _synced(self, durable: "Future[int]") -> None:
        if durable.cancelled():
            return
        failure = durable.exception()
        if failure is None:
            self._stored(durable.result())
        else:
            # Whether the bytes survive is unknown; they stay uncommitted and their producers hear of it.
            self._fail_above(
                self.leader.high_watermark, ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
            )

    def _stored(self, end_offset: int) -> None:
        if not self.leader.stored(end_offset):
            return
        high_watermark = self.leader.high_watermark
        self.log.advance_high_watermark(high_watermark)
        acks = self._acks
        while acks and acks[0].end_offset <= high_watermark:
            acks.popleft().committed()
        if self.watchers:
            self._turn.wake(self.watchers)

    def _fail_above(self, end_offset: int, error: ApiError) -> None:
        # A repeated batch may wait out of order, so all are looked at.
        failed = [ack for ack in self._acks if ack.end_offset > end_offset]
        self._acks = deque(ack for ack in self._acks if ack.end_offset <= end_offset)
        for ack in failed:
            ack.failed(error)
