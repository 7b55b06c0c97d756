"""Truncation of the end of a log, with what waits for the disk in threads; the log takes no writes meanwhile.

    begin (loop) ─► prepare (thread) ─► apply (loop) ─► finish (thread)

`prepare` lowers the durable checkpoints, and builds indexes and producer state of what remains. `apply`
removes the batches. `finish` makes that durable, because a batch that reappeared after a power failure could
follow those that are written instead. After a crash between any two steps, doing it again is safe.
"""

from collections.abc import Callable
from contextlib import suppress
from copy import copy
from functools import partial
from typing import TYPE_CHECKING

from runnel.batch.errors import CorruptBatch
from runnel.disk.damage import read_failure
from runnel.disk.dropping import retire
from runnel.disk.folder_lease import FolderLease
from runnel.disk.producers_on_disk import load_producers, write_snapshot
from runnel.disk.segment import Segment
from runnel.log.names import ABORTED, CLEANER_CHECKPOINT, INDEX, KEY, LOG, SNAPSHOT, TIME_INDEX, offset_of
from runnel.log.producer_snapshot import encode_producers
from runnel.log.producers import Producers
from runnel.model.errors import ApiError, StorageFailed
from runnel.ports.files import Workers

if TYPE_CHECKING:
    from runnel.disk.disk_log import DiskLog

Done = Callable[[ApiError | None], None]

_VIEW_FILES_MAX = 100


class Truncation:
    """The truncation of all batches that do not end below an offset.

    The steps may raise OSError and CorruptBatch.
    """

    def __init__(self, log: "DiskLog", offset: int) -> None:
        self.log = log
        self._offset = offset
        self._lease = FolderLease(log.segments.files)
        self._view = log.segments.view(self._lease, _VIEW_FILES_MAX)
        self._waits: list[Callable[[], None]] = []
        self._producers = Producers()
        self._high_watermark = log.high_watermark
        self._now_ms = log.steady_ms()
        self._interval_bytes = log.config.index_interval_bytes

    def begin(self) -> bool:
        """On the event loop. False if no batch is truncated."""
        log = self.log
        log.settle()
        if not log.finish_swap():
            raise OSError(log.failure)
        if self._offset >= log.written_offset:
            log.forget_epochs_from(self._offset)
            return False
        segment, self._position = log.segments.locate(self._offset)
        self._count = log.segments.segments.index(segment) + 1
        self._view.segments = [copy(segment) for segment in log.segments.segments[: self._count]]
        self._end_offset = min(self._offset, log.segments.base_offset_at(segment, self._position))
        self._waits = log.begin_truncation(self._end_offset)
        return True

    def prepare(self) -> None:
        """In any thread, while the log takes no writes."""
        for wait in self._waits:
            wait()
        last = self._view.active
        last.size_bytes, last.next_offset = self._position, self._end_offset
        self._view.rebuild_indexes(last, self._interval_bytes)
        self._producers, _ = load_producers(self._view, self._end_offset, self._now_ms, self._high_watermark)

    def apply(self) -> None:
        """On the event loop: truncate the files, then the state in memory."""
        log, end_offset = self.log, self._end_offset
        log.segments.log_start_offset = min(log.log_start_offset, end_offset)
        self._truncate_files()
        for segment, loaded in zip(log.segments.segments, self._view.segments, strict=True):
            segment.aborted, segment.aborted_saved = loaded.aborted, loaded.aborted_saved
        last, rebuilt = log.segments.active, self._view.active
        last.size_bytes, last.next_offset = self._position, end_offset
        last.offsets, last.times = rebuilt.offsets, rebuilt.times
        last.max_timestamp, last.max_timestamp_offset = rebuilt.max_timestamp, rebuilt.max_timestamp_offset
        last.bytes_since_entry, last.has_index_files = rebuilt.bytes_since_entry, rebuilt.has_index_files
        log.segments.size_bytes = sum(segment.size_bytes for segment in log.segments.segments)
        log.durability.folder_changed = True
        log.truncated(end_offset, self._producers)

    def finish(self) -> None:
        """In any thread, while the log takes no writes."""
        segments, files = self.log.segments, self._lease
        files.open(segments.path(segments.active, LOG)).datasync()
        files.sync_folder(segments.folder)
        # They cannot reappear, so their aborted transactions and keys are not needed.
        with suppress(OSError):
            self._remove_beside()

    def abandon(self) -> None:
        """The log is removed: from now on no thread uses its file names."""
        self._lease.revoke()

    def _truncate_files(self) -> None:
        log = self.log
        segments = log.segments.segments
        for later in segments[: self._count - 1 : -1]:
            # Newest first, so that offsets stay contiguous after a crash.
            # Their transaction indexes and keys are kept: a power failure may restore the segments.
            retire(log, later.base_offset, [LOG, INDEX, TIME_INDEX, SNAPSHOT])
            log.segments.forget(later)
            segments.pop()
        last = segments[-1]
        durability = log.durability
        durability.unsealed = [
            entry for entry in durability.unsealed if entry[0] in segments and entry[0] is not last
        ]
        retire(log, last.base_offset, [INDEX, TIME_INDEX])
        _remove_beyond(log, self._end_offset)
        log.segments.open(last, create=last.size_bytes == 0).truncate(self._position)

    def _remove_beside(self) -> None:
        view, folder = self._view, self._view.folder
        for name in view.files.names(folder):
            offset = _beside(name)
            if offset is not None and offset > view.active.base_offset:
                view.files.remove(f"{folder}/{name}")
        view.correct_aborted(view.active)


class Restart:
    """The removal of all batches: the log continues at a later offset, where its leader's log starts.

    The same steps as those of a truncation.
    """

    def __init__(self, log: "DiskLog", offset: int) -> None:
        self.log = log
        self._offset = offset
        self._lease = FolderLease(log.segments.files)
        self._waits: list[Callable[[], None]] = []

    def begin(self) -> bool:
        """On the event loop."""
        log = self.log
        log.settle()
        if not log.finish_swap():
            raise OSError(log.failure)
        self._waits = log.begin_truncation(log.segments.segments[0].base_offset)
        return True

    def prepare(self) -> None:
        """In any thread, while the log takes no writes."""
        for wait in self._waits:
            wait()

    def apply(self) -> None:
        """On the event loop: replace all segments by an empty one whose name has the offset."""
        log, offset = self.log, self._offset
        segments = log.segments
        for segment in segments.segments[::-1]:
            # Newest first, so that offsets stay contiguous after a crash.
            retire(log, segment.base_offset, [LOG, INDEX, TIME_INDEX, SNAPSHOT])
            segments.forget(segment)
        _remove_beyond(log, -1)
        first = Segment(offset)
        first.start_indexes()
        segments.open(first, create=True)
        segments.segments[:] = [first]
        segments.log_start_offset = offset
        segments.size_bytes = 0
        durability = log.durability
        durability.unsealed = []
        durability.durable_offset = offset
        durability.folder_changed = True
        durability.drops += 1
        log.restarted(offset)

    def finish(self) -> None:
        """In any thread, while the log takes no writes."""
        segments, files = self.log.segments, self._lease
        write_snapshot(segments.leased(files), self._offset, encode_producers(Producers()))
        files.sync_folder(segments.folder)
        for name in files.names(segments.folder):
            if _beside(name) is not None:
                files.remove(f"{segments.folder}/{name}")

    def abandon(self) -> None:
        """The log is removed: from now on no thread uses its file names."""
        self._lease.revoke()


def _beside(name: str) -> int | None:
    """The offset of a transaction index or a key."""
    aborted_offset = offset_of(name, ABORTED)
    return offset_of(name, KEY) if aborted_offset is None else aborted_offset


def _remove_beyond(log: "DiskLog", end_offset: int) -> None:
    """Remove what describes batches from `end_offset` on: producer snapshots, and the cleaner's progress."""
    files, folder = log.segments.files, log.segments.folder
    for name in files.names(folder):
        snapshot_offset = offset_of(name, SNAPSHOT)
        if name == CLEANER_CHECKPOINT or (snapshot_offset is not None and snapshot_offset > end_offset):
            files.remove(f"{folder}/{name}")


Steps = Truncation | Restart


def run_now(steps: Steps) -> None:
    """All steps at once, which blocks. May raise OSError and CorruptBatch."""
    if steps.begin():
        steps.prepare()
        steps.apply()
        steps.finish()


def run_soon(steps: Steps, readers: Workers, syncers: Workers, done: Done) -> None:
    """All steps, with those that block in threads; `done` is called on the event loop with the outcome.

    The log takes no writes until then, and none after a failure that leaves its files in doubt.
    """
    log = steps.log
    if log.failure is not None:
        done(StorageFailed(log.failure))
        return
    try:
        has_work = steps.begin()
    except (OSError, CorruptBatch) as failure:
        done(read_failure(log.segments.folder, failure))
        return
    if not has_work:
        done(None)
        return
    log.truncation = steps
    reason = f"{log.segments.folder} is being truncated"
    log.fail(reason, can_repair=False)
    readers.submit(steps.prepare, partial(_prepared, steps, reason, syncers, done))


def _prepared(
    steps: Steps, reason: str, syncers: Workers, done: Done, _: None, failure: BaseException | None
) -> None:
    log = steps.log
    if log.failure is not reason:
        # It was removed or closed meanwhile.
        done(StorageFailed(str(log.failure)))
        return
    if failure is not None:
        # Nothing was truncated, and nothing is lost.
        log.truncation = None
        log.health.repaired()
        done(_error(log, failure))
        return
    try:
        steps.apply()
    except (OSError, CorruptBatch) as error:
        # The state in memory may differ from the files; the next start recovers the log.
        log.truncation = None
        log.fail(f"{log.segments.folder} could not be truncated: {error}", can_repair=False)
        done(_error(log, error))
        return
    syncers.submit(steps.finish, partial(_finished, steps, reason, done))


def _finished(steps: Steps, reason: str, done: Done, _: None, failure: BaseException | None) -> None:
    log = steps.log
    if log.failure is not reason:
        done(StorageFailed(str(log.failure)))
        return
    log.truncation = None
    log.health.repaired()
    if failure is not None:
        # As after a failed sync: what is in the file is written again.
        log.fail(f"{log.segments.folder} could not be made durable: {failure}", can_repair=True)
        done(_error(log, failure))
    else:
        done(None)


def _error(log: "DiskLog", failure: BaseException) -> ApiError:
    if not isinstance(failure, OSError | CorruptBatch):
        raise failure
    return read_failure(log.segments.folder, failure)
