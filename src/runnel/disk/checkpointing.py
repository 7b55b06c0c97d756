"""The checkpoints of a data directory: recovery points, log starts and high watermarks.

The offsets of a log are recorded when they change, so that a write of the files costs the event loop one
copy.
"""

from collections.abc import Callable, Container, Iterable
from functools import partial

from runnel.disk.disk_log import DiskLog
from runnel.disk.log_starts import LogStarts
from runnel.disk.offset_file import OffsetFile
from runnel.disk.recreated_logs import RecreatedLogs
from runnel.log.names import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from runnel.model.errors import ApiError
from runnel.model.ids import TopicPartition
from runnel.ports.files import Files, Workers


class Checkpoints:
    """The recovery points, log starts and high watermarks of all logs of one data directory."""

    __slots__ = ("_advancing", "_all", "high_watermarks", "log_starts", "recovery_points", "recreated")

    def __init__(self, files: Files, folder: str, workers: Workers, upkeep_workers: Workers) -> None:
        self.recovery_points = OffsetFile(files, folder, RECOVERY_POINTS)
        self.log_starts = OffsetFile(files, folder, LOG_STARTS)
        self.high_watermarks = OffsetFile(files, folder, HIGH_WATERMARKS)
        self._all = self.recovery_points, self.log_starts, self.high_watermarks
        self.recreated = RecreatedLogs(files, folder, self._all, upkeep_workers)
        self._advancing = LogStarts(self.log_starts, workers)

    def record(self, log: DiskLog) -> None:
        """Record the current offsets of this log for the next write of the files."""
        name = log.name
        if name in self.recreated:
            return
        self.high_watermarks.set(name, log.high_watermark)
        if not log.health.is_damaged:
            self.recovery_points.set(name, log.durability.recovery_point)
        if name not in self._advancing:
            if log.durability.start_is_in_file_names:
                self.log_starts.discard(name)
            else:
                self.log_starts.set(name, log.log_start_offset)

    def truncate(self, log: DiskLog, end_offset: int) -> list[Callable[[], None]]:
        """Lower the offsets of this log to `end_offset` in all files.

        They are durable once what this returns has been called, in any thread.
        """
        stores: list[Callable[[], None]] = []
        if log.name in self.recreated:
            return stores
        for file, offset in (
            (self.recovery_points, log.durability.recovery_point),
            # It may be listed as it is about to be, while DeleteRecords waits for that.
            (self.log_starts, min(log.log_start_offset, end_offset)),
            (self.high_watermarks, min(log.high_watermark, end_offset)),
        ):
            # What is on its way into the file may be more than what the next write contains.
            if file.offsets.get(log.name, 0) > offset or not file.is_stored:
                file.set(log.name, offset)
                stores.append(file.prepare())
        return stores

    def advance_log_start(self, log: DiskLog, offset: int, done: Callable[[ApiError | None], None]) -> None:
        """Advance the log start to `offset`; `done` is called once that is durable, or with the error."""
        if log.name in self.recreated:
            action = partial(self._advance_released, log, offset, done, log.truncations)
            self.recreated.when_released(log, action)
            self.recreated.release(again=True)
        else:
            self._advancing.advance(log, offset, done, log.truncations)

    def _advance_released(
        self,
        log: DiskLog,
        offset: int,
        done: Callable[[ApiError | None], None],
        truncations: int,
        error: ApiError | None,
    ) -> None:
        if error is not None:
            done(error)
        else:
            self._advancing.advance(log, offset, done, truncations)

    def delete(self, name: TopicPartition) -> None:
        """A log was removed."""
        self._advancing.forget(name)
        self.recreated.forget(name)
        for file in self._all:
            file.discard(name)

    def delete_all_but(self, names: Container[TopicPartition]) -> None:
        """Keep only these logs at start; the last run may not have removed the entries of others."""
        for file in self._all:
            for name in list(file.offsets):
                if name not in names:
                    file.discard(name)

    def may_contain_deleted(self, name: TopicPartition) -> bool:
        """Could a new log inherit the offsets of an older one of the same name after a crash?"""
        return any(file.may_contain_discarded(name) for file in self._all)

    def store(self, logs: Iterable[DiskLog]) -> None:
        """Write all files with the current offsets; durable on return."""
        for log in logs:
            self.record(log)
        for file in self._all:
            file.store()
        self.recreated.release_now()
