"""Background maintenance of a data directory: timed flushes, retention, checkpoints, deletion."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from runnel.batch.errors import CorruptBatch
from runnel.disk.checkpointing import Checkpoints
from runnel.disk.cleaner import Cleaner
from runnel.disk.disk_log import DiskLog
from runnel.disk.dropping import drop_below_start
from runnel.disk.group_commit import GroupCommit
from runnel.disk.removal import Removal
from runnel.disk.repair import start_repair
from runnel.disk.retention import apply_retention
from runnel.model.errors import StorageFailed
from runnel.model.ids import TopicPartition
from runnel.model.log_config import FOREVER
from runnel.ports.files import Workers

logger = logging.getLogger(__name__)

LOGS_PER_RUN_MAX = 200
"""Logs checked in one run: each costs a few microseconds, and a run must not delay a client."""
LOADS_PER_RUN_MAX = 20
"""Logs whose indexes and producers are loaded ahead of their first use after a start."""
RETRY_AFTER_MS = 60_000
"""Time after which a failed retention of a log is retried."""
FLUSH_INTERVAL_MS = 1000
"""The flush interval of the policy `interval` without flush.ms."""


@dataclass(frozen=True, slots=True)
class UpkeepIntervals:
    """The intervals of upkeep."""

    retention_interval_ms: int = 0
    recovery_points_interval_ms: int = 60_000
    log_starts_interval_ms: int = 60_000
    high_watermarks_interval_ms: int = 5_000


class Interval:
    """A recurring interval."""

    __slots__ = ("_due_ms", "_interval_ms")

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        self._due_ms: int | None = None

    def is_over(self, now_ms: int, *, first: bool) -> bool:
        """Is it due? Then the next interval begins. The first call returns `first`."""
        if self._due_ms is None:
            is_due = first
        else:
            # A clock that was set back must not delay anything by more than an interval.
            is_due = not self._due_ms - self._interval_ms <= now_ms < self._due_ms
        if is_due or self._due_ms is None:
            self._due_ms = now_ms + self._interval_ms
        return is_due


class Upkeep:
    """Schedules maintenance; the work is done by threads, except for a few renames."""

    def __init__(
        self,
        logs: Mapping[TopicPartition, DiskLog],
        checkpoints: Checkpoints,
        commit: GroupCommit,
        removal: Removal,
        workers: Workers,
        cleaner: Cleaner,
        intervals: UpkeepIntervals,
    ) -> None:
        self._logs = logs
        self._checkpoints = checkpoints
        self._commit = commit
        self._removal = removal
        self._workers = workers
        self._cleaner = cleaner
        self._flush_due: dict[DiskLog, tuple[int, int]] = {}
        """The start and the limit of the wait of logs with unflushed records."""
        self._unstamped: list[DiskLog] = []
        self._round: list[DiskLog] = []
        self._loads_left = 0
        self._round_applies_retention = False
        self._failed: dict[DiskLog, None] = {}
        self._unfinished: set[DiskLog] = set()
        """Logs with segments that retention drops as soon as they are sealed."""
        self._not_before_ms: dict[TopicPartition, int] = {}
        """Logs whose retention failed, with the time of the retry."""
        self._retention = Interval(intervals.retention_interval_ms)
        self._recovery_points = Interval(intervals.recovery_points_interval_ms)
        self._log_starts = Interval(intervals.log_starts_interval_ms)
        self._high_watermarks = Interval(intervals.high_watermarks_interval_ms)

    def close(self) -> None:
        """Stop, and wait for background work."""
        self._cleaner.close()

    def flush_later(self, log: DiskLog) -> None:
        """Flush this log within flush.ms, counted from the next run."""
        self._unstamped.append(log)

    def repair_later(self, log: DiskLog) -> None:
        """Schedule the repair of this log."""
        self._failed[log] = None

    def run(self, now_ms: int) -> None:
        """Start what is due."""
        self._flush(now_ms)
        self._repair()
        self._check_some(now_ms)
        self._checkpoint(now_ms)
        self._cleaner.consider(self._logs.values(), now_ms)
        self._removal.run(now_ms)

    def _flush(self, now_ms: int) -> None:
        for log in self._unstamped:
            flush_ms = log.config.flush_ms
            self._flush_due[log] = now_ms, FLUSH_INTERVAL_MS if flush_ms == FOREVER else flush_ms
        self._unstamped.clear()
        # A clock that was set back must not delay flushes.
        due = [
            log
            for log, (since_ms, wait_ms) in self._flush_due.items()
            if not since_ms <= now_ms < since_ms + wait_ms
        ]
        for log in due:
            del self._flush_due[log]
            log.flush_is_due = False
            self._commit.flush(log)

    def _check_some(self, now_ms: int) -> None:
        if not self._round:
            self._round = list(self._logs.values())
            self._unfinished.intersection_update(self._round)
            self._round_applies_retention = self._retention.is_over(now_ms, first=True)
        some = self._round[-LOGS_PER_RUN_MAX:]
        # Taken off before anything can fail: no log may stop the round for the others.
        del self._round[-LOGS_PER_RUN_MAX:]
        self._loads_left = LOADS_PER_RUN_MAX
        for log in some:
            if self._logs.get(log.name) is log and log.failure is None:
                self._check_log(log, now_ms)

    def _check_log(self, log: DiskLog, now_ms: int) -> None:
        if now_ms >= self._not_before_ms.get(log.name, 0):
            try:
                self._drop_old(log, now_ms)
            except (OSError, CorruptBatch, StorageFailed) as failure:
                self._not_before_ms[log.name] = now_ms + RETRY_AFTER_MS
                logger.warning("%s: retention failed: %s", log.segments.folder, failure)
            except Exception:
                self._not_before_ms[log.name] = now_ms + RETRY_AFTER_MS
                logger.exception("%s: retention failed", log.segments.folder)
        log.producer_state.expire(log.config.producer_id_expiration_ms)
        log.reader.time_passed()
        self._checkpoints.record(log)
        if self._loads_left > 0 and log.load_once():
            self._loads_left -= 1
        self._commit.seal(log)

    def _drop_old(self, log: DiskLog, now_ms: int) -> None:
        # Segments below the log start are left when their records are deleted before they are sealed.
        drop_below_start(log)
        if self._round_applies_retention or log in self._unfinished:
            self._unfinished.discard(log)
            if not apply_retention(log, now_ms):
                self._unfinished.add(log)

    def _repair(self) -> None:
        for log in list(self._failed):
            if not log.health.can_repair:
                del self._failed[log]
            elif not self._commit.is_busy(log):
                start_repair(log, self._workers)

    def _checkpoint(self, now_ms: int) -> None:
        checkpoints = self._checkpoints
        for interval, file in (
            (self._recovery_points, checkpoints.recovery_points),
            (self._log_starts, checkpoints.log_starts),
            (self._high_watermarks, checkpoints.high_watermarks),
        ):
            if interval.is_over(now_ms, first=False):
                checkpoints.recreated.release(again=True)
                if not file.is_stored:
                    self._workers.submit(file.prepare(), _report_failure)
        checkpoints.recreated.release()


def _report_failure(_: object, failure: BaseException | None) -> None:
    if failure is not None:
        logger.warning("a checkpoint could not be stored: %s", failure)
