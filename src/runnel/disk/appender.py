"""The write path of a log: batches are staged one by one and written together.

    stage (check, assign offsets, patch) … write_staged (one writev) … sync (fdatasync in a thread)
    end_offset ≥                         written_offset ≥            durable_offset

Large writes are done by a thread (`write_later`), one at a time; what is staged meanwhile goes with the next
one. Operations that require that no write is in flight call `settle`. If a write fails, all staged batches
are rolled back, and every caller receives the error: in its callback, or when it requests the write of its
batches.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from runnel.batch.errors import CorruptBatch
from runnel.disk.aborted_on_disk import aborted_of
from runnel.disk.damage import is_damage
from runnel.disk.durability import Durability
from runnel.disk.health import Health, nothing
from runnel.disk.home import WriteThreads
from runnel.disk.producer_state import ProducerState
from runnel.disk.segment import Segment
from runnel.disk.segments import LongRebuild, Segments
from runnel.disk.staged_write import (
    Done,
    Run,
    StagedBatch,
    StagedWrite,
    open_runs,
    split_runs,
    stored_buffers,
    undo_runs,
    write_all,
)
from runnel.disk.staging import Staging
from runnel.log.producer_snapshot import encode_producers
from runnel.log.rolling import index_entries_max
from runnel.model.errors import DamagedLog, StorageFailed
from runnel.model.log_config import LogConfig
from runnel.ports.files import File

logger = logging.getLogger(__name__)

REBUILT_BATCHES_MAX = 1000
"""If the index of the active segment is lost, this many batches are scanned for it on the event loop."""


class Appender:
    """Appends staged batches to the log, and rolls them back if the write fails."""

    __slots__ = (
        "_announced",
        "_dones",
        "_durability",
        "_has_caller",
        "_health",
        "_load_soon",
        "_on_rolled",
        "_on_written",
        "_producers",
        "_segments",
        "_staging",
        "_threads",
        "_write",
    )

    def __init__(
        self,
        staging: Staging,
        segments: Segments,
        producers: ProducerState,
        durability: Durability,
        health: Health,
        threads: WriteThreads,
        *,
        on_written: Callable[[], None],
        on_rolled: Callable[[], None],
        load_soon: Callable[[], None],
    ) -> None:
        self._load_soon = load_soon
        self._staging, self._segments, self._producers = staging, segments, producers
        self._durability, self._health, self._threads = durability, health, threads
        self._on_written, self._on_rolled = on_written, on_rolled
        self._write: StagedWrite | None = None
        """The write in flight in a thread. Batches that are staged meanwhile are written after it."""
        self._dones: list[Done] = []
        """Callbacks that receive the outcome of what is staged."""
        self._announced = 0
        """The number of staged batches for which `write_later` was called: `_dones` receive their outcome."""
        self._has_caller = True
        """Does a caller wait for the outcome of what is being written?"""

    def detach(self) -> None:
        """Drop references to the removed log."""
        self._load_soon = self._on_written = self._on_rolled = nothing

    def configure(self, config: LogConfig) -> None:
        staging = self._staging
        if config.encryption_enable != staging.config.encryption_enable:
            # What is staged goes into segments of the former kind.
            self.settle()
        staging.configure(config)
        self._segments.encrypts = config.encryption_enable
        self._segments.has_encrypted |= config.encryption_enable
        if config.encryption_enable and self._segments.keys is None:
            logger.error(
                "%s: encryption.enable is set, and this node has no master key: it takes no records",
                self._segments.folder,
            )
        if not staging.batches and not staging.rolls and self._write is None:
            staging.measure_tail()

    def roll_now(self) -> None:
        """Close the active segment; an empty one follows, whose file name holds the end offset."""
        self.settle()
        assert not self._staging.batches
        snapshot = encode_producers(self._producers.get())
        segment = Segment(self._segments.written_offset)
        segment.start_indexes()
        self._segments.open(segment, create=True)
        self._durability.folder_changed = True
        self._close_active(snapshot)
        self._segments.segments.append(segment)
        self._staging.rolls.clear()
        self._staging.measure_tail()
        self._on_rolled()

    def truncated(self) -> None:
        """The log was truncated while nothing was staged."""
        assert not self._staging.batches
        self._staging.clear()

    def write_staged(self) -> None:
        """Write all staged batches in one call; on failure roll all back and raise StorageFailed."""
        if self._staging.unreported is not None:
            failure, self._staging.unreported = self._staging.unreported, None
            raise failure
        if self._write is not None:
            refusal = self._end_now(self._write)
            if refusal is not None:
                raise refusal
        staged = self._staging.batches
        if not staged:
            return
        active = self._segments.active
        self._ready_indexes(active)
        if self._staging.rolls or self._dones:
            write = self._take_staged()
            write.run()
            refusal = self._end(write)
            if refusal is not None:
                raise refusal
            return
        file = active.file
        try:
            if file is None or active.size_bytes == 0:
                file = self._open_active(active)
            write_all(file, stored_buffers(active, staged), active.size_bytes)
        except (OSError, CorruptBatch) as error:
            raise self._undo([Run(active, staged, None)], error) from error
        active.is_warm = True
        self._take_over(active, staged)
        staged.clear()
        self._wrote()

    def write_later(self, done: Done) -> bool:
        """Write the staged batches in a thread, and call `done`; False if they are too small for that.

        The first write to an encrypted segment is not: it waits until the key is durable.

        The memory of the batches stays borrowed until then.
        """
        if self._staging.unreported is not None:
            failure, self._staging.unreported = self._staging.unreported, None
            done(failure)
            return True
        staged_bytes = sum(len(batch.data) for batch in self._staging.batches)
        is_small = staged_bytes < self._threads.background_bytes_min
        if self._write is None and is_small and not self._creates_key():
            return False
        self._dones.append(done)
        self._announced = len(self._staging.batches)
        if self._write is None:
            self._begin_write()
        return True

    def _creates_key(self) -> bool:
        staging = self._staging
        return bool(staging.batches) and self._segments.needs_key(rolls=bool(staging.rolls))

    def settle(self) -> None:
        """Return when nothing is staged and no write is in flight."""
        if self._write is None and not self._staging.batches:
            return
        self._has_caller = False
        if self._write is None or self._end_now(self._write) is None:
            with suppress(StorageFailed):
                # Every caller receives it, now or when it requests the write of its batches.
                self.write_staged()
        self._has_caller = True

    def _begin_write(self) -> None:
        try:
            if self._health.failure is not None:
                # It failed while this waited for it: nothing may be appended after the failed write.
                raise self._undo([], OSError(self._health.failure))
            self._ready_indexes(self._segments.active)
            self._write = write = self._take_staged()
        except StorageFailed:
            return
        self._threads.write_soon(write.run, partial(self._ended, write))

    def _ended(self, write: StagedWrite, _: None, bug: BaseException | None) -> None:
        if bug is not None:
            raise bug
        if self._write is write:
            # Else `settle` or another write has done all this.
            self._has_caller = False
            self._end_now(write)
            if self._dones:
                self._begin_write()
            self._has_caller = True

    def _end_now(self, write: StagedWrite) -> StorageFailed | None:
        self._write = None
        write.run()
        return self._end(write)

    def _take_staged(self) -> StagedWrite:
        """All staged batches as one write with open files."""
        is_announced = len(self._staging.batches) <= self._announced
        batches, rolls = self._staging.take()
        runs = split_runs(self._segments, batches, rolls) if rolls else []
        runs = runs or [Run(self._segments.active, batches, None)]
        self._durability.folder_changed |= bool(rolls) or self._segments.active.size_bytes == 0
        try:
            open_runs(self._segments, runs)
        except (OSError, CorruptBatch) as error:
            raise self._undo(runs, error, is_announced=is_announced) from error
        producers = self._producers.loaded
        changes = producers.staged_count if producers is not None else 0
        write = StagedWrite(self._segments, runs, changes, self._dones, is_announced)
        self._dones = []
        self._announced = 0
        return write

    def _end(self, write: StagedWrite) -> StorageFailed | None:
        """Complete a write: its batches are part of the log, or are rolled back."""
        if write.failure is not None:
            self._dones = write.dones + self._dones
            return self._undo(write.runs, write.failure, is_announced=write.is_announced)
        for run in write.runs:
            if run.snapshot is not None:
                self._close_active(run.snapshot)
                self._segments.segments.append(run.segment)
            run.segment.is_warm = True
            self._take_over(run.segment, run.batches)
        self._wrote(write.producer_changes)
        if write.runs[-1].snapshot is not None:
            self._on_rolled()
        for done in write.dones:
            done(None)
        return None

    def _ready_indexes(self, active: Segment) -> None:
        if active.offsets is None or active.times is None or active.aborted is None:
            self._load_indexes(active)
        # They get entries that their files lack: the cache of open files must not drop them.
        active.has_index_files = False

    def _open_active(self, active: Segment) -> File:
        file = self._segments.open(active, create=active.size_bytes == 0)
        if active.size_bytes == 0:
            self._durability.folder_changed = True
            self._segments.begin(active)
        return file

    def _load_indexes(self, active: Segment) -> None:
        try:
            self._segments.load_indexes(active, REBUILT_BATCHES_MAX)
            aborted_of(self._segments, active, may_walk=False)
        except LongRebuild as error:
            self._load_soon()
            if active.offsets is None or active.times is None or active.aborted is None:
                raise self._undo([], error) from error
        except (OSError, CorruptBatch) as error:
            raise self._undo([], error) from error

    def _take_over(self, segment: Segment, batches: Sequence[StagedBatch]) -> None:
        """These batches are in the segment's file: update its indexes."""
        config = self._staging.config
        interval_bytes = config.index_interval_bytes
        size_bytes = segment.size_bytes
        overhead_bytes = 0 if segment.cipher is None else segment.cipher.overhead_bytes
        for batch in batches:
            stored_bytes = len(batch.data) + overhead_bytes
            if segment.extended(stored_bytes, batch.last_offset, batch.max_timestamp, interval_bytes):
                assert segment.offsets is not None
                if len(segment.offsets) >= index_entries_max(config):
                    self._staging.segment_is_full()
        self._segments.size_bytes += segment.size_bytes - size_bytes

    def _close_active(self, snapshot: bytes) -> None:
        self._segments.active.close_time_index()
        self._durability.unsealed.append((self._segments.active, snapshot))

    def _wrote(self, producer_changes: int | None = None) -> None:
        producers = self._producers.loaded
        if producers is not None:
            aborted = producers.keep_staged(producer_changes)
            if aborted:
                self._segments.add_aborted(aborted)
        self._on_written()

    def _undo(self, runs: list[Run], error: Exception, *, is_announced: bool = True) -> StorageFailed:
        """Roll back all staged batches; returns the error to raise."""
        folder = self._segments.folder
        # An OSError of a write proves nothing about what was written before.
        is_damaged = isinstance(error, CorruptBatch) and is_damage(error)
        failed = (DamagedLog if is_damaged else StorageFailed)(f"{folder}: {error}")
        try:
            undo_runs(self._segments, runs)
        except OSError as second:
            # Unacknowledged bytes remain after the end of the log: nothing may be appended.
            self._health.fail(f"{folder} could not be truncated: {second}", can_repair=True)
        except CorruptBatch:
            # The file ends before them.
            pass
        self._durability.folder_changed = True
        is_announced = is_announced and len(self._staging.batches) <= self._announced
        if not self._has_caller and not is_announced:
            # Their caller has yet to request the write: it receives the failure then.
            self._staging.unreported = failed
        self._staging.clear()
        self._announced = 0
        dones, self._dones = self._dones, []
        for done in dones:
            done(failed)
        return failed
