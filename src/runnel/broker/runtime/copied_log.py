"""A log that this node copies from the leader of its partition: appends batches as they are, and truncates.

Large copies are written, and the log is truncated, by a thread. Where the log ends is known only afterwards:
the role of this node does not change before (`is_changing`).
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial

from runnel.broker.runtime.promise import Promise, forward
from runnel.broker.runtime.stored_log import StoredLog
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import TopicPartition
from runnel.observe.counters import TopicTraffic
from runnel.ports.clock import Clock
from runnel.ports.disk import Disk, Origin, PartitionLog
from runnel.replica.follower import FollowerReplica
from runnel.replica.replica import Replica

logger = logging.getLogger("runnel.broker")


class CopiedLog(StoredLog, ABC):
    """What a follower does with its log."""

    __slots__ = (
        "_clock",
        "_deferred",
        "_is_copying",
        "appended_bytes",
        "is_leader",
        "is_truncating",
        "replica",
        "traffic",
    )

    def __init__(
        self,
        name: TopicPartition,
        log: PartitionLog,
        disk: Disk,
        replica: FollowerReplica,
        clock: Clock,
        traffic: TopicTraffic,
    ) -> None:
        super().__init__(name, log, disk)
        self.replica: Replica = replica
        self.is_leader = False
        self.is_truncating = False
        """Is a thread truncating the log? It takes no writes then."""
        self._is_copying = False
        """Is a thread writing batches of the leader? They are not part of the log yet, and may never be."""
        self.appended_bytes = 0
        """All bytes staged since start: lets a long poll compare with min.bytes."""
        self._deferred: Callable[[], None] | None = None
        """What to do once no thread changes the log."""
        self._clock = clock
        self.traffic = traffic
        """The counts of the topic, shared by its partitions."""

    @abstractmethod
    def advance(self) -> None:
        """The replica core has moved the high watermark."""
        ...

    @property
    def epoch(self) -> int:
        """The leader epoch that this node leads or follows in."""
        return self.replica.epoch

    @property
    def high_watermark(self) -> int:
        """Everything below is committed: it may be acknowledged and read."""
        return self.replica.high_watermark

    def truncate_to(self, offset: int) -> None:
        """As a follower: truncate what the leader does not have, never below the high watermark."""
        assert not self.is_leader, "a leader's log is the truth"
        if offset < self.high_watermark:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"truncation to {offset} would remove committed records below {self.high_watermark}",
            )
        self.log.truncate_to(offset)

    def append_copies(self, records: memoryview, epoch: int) -> Promise[None]:
        """As a follower: append batches of the leader, which were fetched in `epoch`, as they are.

        The promise is kept once they are stored as the flush policy requires: then the next fetch may
        acknowledge them. Raises ApiError: CORRUPT_MESSAGE without any effect, or an error of the disk.
        """
        if self.is_leader or epoch != self.replica.epoch:
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH, f"{self.name} is in epoch {self.replica.epoch}")
        self.log.stage(records, epoch, self._clock.now_ms(), Origin.REPLICA)
        self.appended_bytes += len(records)
        self.traffic.replication_bytes_in += len(records)
        stored: Promise[None] = Promise()
        self._is_copying = True
        if not self.log.write_later(partial(self._copied, stored)):
            try:
                self.log.write_staged()
            except ApiError as error:
                self._is_copying = False
                self.check_damage(error)
                raise
            self._copied(stored, None)
        return stored

    def _copied(self, stored: Promise[None], error: ApiError | None) -> None:
        self._is_copying = False
        self._do_deferred()
        self.check_damage(error)
        if error is not None:
            stored.fail(error)
        elif self.log.config.acks_wait_for_disk:
            forward(self.make_durable(), stored)
        else:
            stored.resolve(None)

    @property
    def fetch_offset(self) -> int:
        """As a follower: the end of the log; a fetch from there acknowledges everything below."""
        log = self.log
        return log.durable_offset if log.config.acks_wait_for_disk else log.written_offset

    def advance_high_watermark(self, high_watermark: int) -> None:
        """As a follower: the leader has reported its high watermark."""
        replica, end_offset = self.replica, self.log.written_offset
        if isinstance(replica, FollowerReplica) and replica.committed(high_watermark, end_offset):
            self.advance()

    def truncate(self, offset: int) -> Promise[None]:
        """As a follower: truncate what the leader does not have, while a thread waits for the disk.

        That is below the high watermark only after an unclean election.
        """
        if offset < self.high_watermark:
            logger.error(
                "%s is truncated to %d, below its high watermark %d: its leader lost committed records",
                self.name,
                offset,
                self.high_watermark,
            )
        return self._change_log(partial(self.log.truncate_later, offset))

    @property
    def is_changing(self) -> bool:
        """Does a thread write batches of the leader, or truncate the log? The role must not change then.

        Where the log ends is known only afterwards: what a new leader loads, commits and appends to.
        """
        return self._is_copying or self.is_truncating

    def when_changed(self, action: Callable[[], None]) -> None:
        """Do this once no thread changes the log; it replaces an earlier action."""
        self._deferred = action

    def _do_deferred(self) -> None:
        deferred, self._deferred = self._deferred, None
        if deferred is not None:
            deferred()

    def restart_at(self, offset: int) -> Promise[None]:
        """As a follower: remove all records and continue at `offset`, where the leader's log starts."""
        return self._change_log(partial(self.log.restart_at, offset))

    def _change_log(self, change: Callable[[Callable[[ApiError | None], None]], None]) -> Promise[None]:
        assert not self.is_leader and not self.is_changing
        changed: Promise[None] = Promise()

        def done(error: ApiError | None) -> None:
            self.is_truncating = False
            self._do_deferred()
            self.check_damage(error)
            if error is None:
                changed.resolve(None)
            else:
                changed.fail(error)

        self.is_truncating = True
        change(done)
        return changed
