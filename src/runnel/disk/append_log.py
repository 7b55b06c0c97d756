"""The writing half of a log: batches are staged one by one and written together.

stage (check, give offsets, patch) … write_staged (one writev) … sync (fdatasync in a thread)
end_offset ≥                       written_offset ≥             durable_offset

Much at once is written by a thread (`write_later`), one write at a time; what is staged meanwhile goes with
the next one. Whoever needs the files at rest calls `settle`.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from runnel.batch.control import read_end_marker
from runnel.batch.errors import CorruptBatch
from runnel.batch.header import patch_offset_and_epoch, place_batch
from runnel.disk.aborted_on_disk import aborted_of
from runnel.disk.appending import Run, StagedBatch, open_runs, split_runs, undo_runs, write_all
from runnel.disk.log_state import LogState
from runnel.disk.producers_on_disk import load_producers
from runnel.disk.segment import Segment
from runnel.disk.segment_swap import end_swap
from runnel.disk.writing import Done, Write
from runnel.log.producer_snapshot import encode_producers
from runnel.log.rolling import FULL, index_entries_max, limits_of, limits_of_empty
from runnel.log.validation import PlainBatch, ValidBatch, plain_batch, validate, validate_copies
from runnel.model.errors import ApiError, StorageFailed
from runnel.ports.disk import Origin, Staged
from runnel.ports.files import File

_CLIENT = Origin.CLIENT
_REPLICA = Origin.REPLICA


class AppendLog(LogState):
    """A log as those who write to it see it."""

    __slots__ = ()

    def fail(self, reason: str, *, can_heal: bool) -> None:
        """Take nothing more, for this reason; reading goes on."""
        self.failure = reason
        self.can_heal = can_heal
        if can_heal:
            self._home.heal_later(self)

    def begin_cut(self, end_offset: int) -> None:
        """The log is about to end here: no thread and no start may believe in more. Durable on return."""
        self._home.interrupt_sync(self)
        self.durable_offset = min(self.durable_offset, end_offset)
        self.sync_ceiling = min(self.sync_ceiling, end_offset)
        self._home.lower_recovery_point(self)

    def stage(self, records: memoryview, leader_epoch: int, now_ms: int, origin: Origin) -> Staged:
        if self.failure is not None:
            raise StorageFailed(self.failure)
        if self._unreported is not None:
            # Offsets must not be given out again before the failure of their first batches is known.
            raise self._unreported
        if origin is _REPLICA:
            return self._stage_copies(records, now_ms)
        batch = validate(records, self.config, now_ms, from_client=origin is _CLIENT)
        header = batch.header
        base_offset = self.end_offset
        last_offset = base_offset + header.last_offset_delta
        limits = self._limits
        if (
            self._tail_bytes + len(batch.data) > limits.size_bytes
            or header.max_timestamp > limits.timestamp_ms
            or last_offset > limits.last_offset
        ):
            self.plan_roll()
        if header.producer_id >= 0:
            earlier = self._stage_producer(batch, base_offset, now_ms, origin is _CLIENT)
            if earlier is not None:
                return earlier
        patch_offset_and_epoch(batch.data, 0, base_offset, leader_epoch)
        header.base_offset = base_offset
        if leader_epoch > self.epochs.latest:
            self.epochs_changed |= self.epochs.assign(leader_epoch, base_offset)
        if self._tail_bytes == 0:
            self._limits = limits_of(self.config, base_offset, header.max_timestamp, now_ms)
        self._tail_bytes += len(batch.data)
        self._staged.append(batch)
        self.end_offset = last_offset + 1
        return Staged(base_offset, last_offset, batch.log_append_time_ms, self.log_start_offset)

    def stage_all(
        self, batches: Sequence[memoryview], leader_epoch: int, now_ms: int
    ) -> list[Staged | ApiError]:
        outcomes: list[Staged | ApiError] = []
        config, stage_plain = self.config, self._takes_plain_batches
        size_max = min(config.max_message_bytes, config.segment_bytes)
        latest_ms = now_ms + config.message_timestamp_after_max_ms
        for records in batches:
            staged = None
            if stage_plain:
                plain = plain_batch(records, size_max, latest_ms)
                if plain is not None:
                    staged = self._stage_plain(records, plain[0], plain[1], leader_epoch)
            if staged is None:
                try:
                    staged = self.stage(records, leader_epoch, now_ms, _CLIENT)
                except ApiError as error:
                    outcomes.append(error)
                    continue
            outcomes.append(staged)
        return outcomes

    def _stage_plain(
        self, data: memoryview, last_offset_delta: int, max_timestamp: int, leader_epoch: int
    ) -> Staged | None:
        """Stage a batch behind another of the same segment and epoch; None if it is not that simple."""
        base_offset, tail_bytes, limits = self.end_offset, self._tail_bytes, self._limits
        last_offset = base_offset + last_offset_delta
        size_bytes = tail_bytes + len(data)
        if (
            tail_bytes == 0
            or size_bytes > limits.size_bytes
            or max_timestamp > limits.timestamp_ms
            or last_offset > limits.last_offset
            or leader_epoch > self.epochs.latest
            or self.failure is not None
            or self._unreported is not None
        ):
            return None
        place_batch(data, base_offset, leader_epoch)
        self._tail_bytes = size_bytes
        self._staged.append(PlainBatch(data, base_offset, last_offset, max_timestamp))
        self.end_offset = last_offset + 1
        return Staged(base_offset, last_offset, -1, self.log_start_offset)

    def _stage_producer(
        self, batch: ValidBatch, base_offset: int, now_ms: int, from_client: bool
    ) -> Staged | None:
        """Admit the batch of an idempotent producer; if it came before, where it went then."""
        header = batch.header
        if header.is_control:
            marker = read_end_marker(batch.data)
            if marker is not None:
                self.producer_state().stage_marker(header, marker, base_offset, now_ms)
            return None
        earlier = self.producer_state().stage(header, base_offset, now_ms, from_client=from_client)
        if earlier is None:
            return None
        append_time_ms = earlier.max_timestamp if batch.log_append_time_ms >= 0 else -1
        return Staged(
            earlier.base_offset, earlier.last_offset, append_time_ms, self.log_start_offset, duplicate=True
        )

    def _stage_copies(self, records: memoryview, now_ms: int) -> Staged:
        """Batches as their leader wrote them: offsets, epochs and sequences are facts already."""
        batches = validate_copies(records)
        base_offset = self.end_offset
        if batches and batches[0].header.base_offset < base_offset:
            raise CorruptBatch(
                f"a copy begins at {batches[0].header.base_offset}, our log ends at {base_offset}"
            )
        for batch in batches:
            header = batch.header
            limits = self._limits
            if (
                self._tail_bytes + len(batch.data) > limits.size_bytes
                or header.max_timestamp > limits.timestamp_ms
                or header.last_offset > limits.last_offset
            ):
                self.plan_roll()
            if header.producer_id >= 0:
                marker = read_end_marker(batch.data) if header.is_control else None
                self.producer_state().stage_copy(header, marker, now_ms)
            self.epochs_changed |= self.epochs.assign(header.leader_epoch, header.base_offset)
            if self._tail_bytes == 0:
                self._limits = limits_of(self.config, self.end_offset, header.max_timestamp, now_ms)
            self._tail_bytes += len(batch.data)
            self._staged.append(batch)
            self.end_offset = header.next_offset
        first_offset = batches[0].header.base_offset if batches else base_offset
        return Staged(first_offset, self.end_offset - 1, -1, self.log_start_offset)

    def plan_roll(self) -> None:
        """Let the next batch begin a new segment."""
        self._rolls.append((len(self._staged), encode_producers(self.producer_state())))
        self._tail_bytes = 0
        self._limits = limits_of_empty(self.end_offset)

    def roll_now(self) -> None:
        """Close the active segment; an empty one follows, whose file remembers the end offset."""
        self.settle()
        assert not self._staged
        snapshot = encode_producers(self.producer_state())
        segment = Segment(self.written_offset)
        segment.start_indexes()
        self.segments.open(segment, create=True)
        self.folder_changed = True
        self._close_active(snapshot)
        self.segments.segments.append(segment)
        self._rolls.clear()
        self._look_at_the_tail()
        self._home.seal_soon(self)

    def was_cut(self, end_offset: int) -> None:
        """The log's end was taken off: nothing that was remembered of it is true any more."""
        assert not self._staged
        self.truncations += 1
        self.end_offset = self.written_offset = end_offset
        self.high_watermark = min(self.high_watermark, end_offset)
        self._recent_offset = self._recent_mark = end_offset
        self.epochs_changed |= self.epochs.truncate_to(end_offset)
        self.loose_snapshot_offset = -1
        self._producers, _ = load_producers(
            self.segments, end_offset, self._home.now_ms(), self.high_watermark
        )
        self.forget_hints()
        self._rolls.clear()
        self._look_at_the_tail()

    def write_staged(self) -> None:
        if self._unreported is not None:
            failure, self._unreported = self._unreported, None
            raise failure
        if self._write is not None:
            api_error = self._end_now(self._write)
            if api_error is not None:
                raise api_error
        staged = self._staged
        if not staged:
            return
        active = self.segments.active
        self._ready_indexes(active)
        if self._rolls or self._dones:
            write = self._take_staged()
            write.run()
            api_error = self._end(write)
            if api_error is not None:
                raise api_error
            return
        file = active.file
        try:
            if file is None or active.size_bytes == 0:
                file = self._open_active(active)
            write_all(file, [batch.data for batch in staged], active.size_bytes)
        except OSError as error:
            raise self._undo([Run(active, staged, None)], error) from error
        active.is_warm = True
        self._take_over(active, staged)
        staged.clear()
        self._wrote(self.end_offset)

    def write_later(self, done: Done) -> bool:
        """Let a thread write what is staged, and tell `done`; False if it is not worth a thread.

        The memory stays borrowed until then.
        """
        if self._unreported is not None:
            failure, self._unreported = self._unreported, None
            done(failure)
            return True
        staged_bytes = sum(len(batch.data) for batch in self._staged)
        if self._write is None and staged_bytes < self._home.background_bytes_min:
            return False
        self._dones.append(done)
        self._announced = len(self._staged)
        if self._write is None:
            self._begin_write()
        return True

    def settle(self) -> None:
        """Return when no write is under way or waits for its turn."""
        if self._write is None:
            return
        self._is_asked = False
        if self._end_now(self._write) is None:
            with suppress(StorageFailed):
                # All callers are informed, now or when they ask for their batches to be written.
                self.write_staged()
        self._is_asked = True

    def finish_swap(self) -> None:
        """Return when no thread renames our segments; this waits for the disk."""
        swap = self.swap
        if swap is not None:
            swap.run()
            with suppress(OSError):
                # The cleaner will meet it, too, and reports it.
                end_swap(self, swap)

    def _begin_write(self) -> None:
        try:
            if self.failure is not None:
                # It failed while this waited for its turn: nothing may follow what stands there.
                raise self._undo([], OSError(self.failure))
            self._ready_indexes(self.segments.active)
            self._write = write = self._take_staged()
        except StorageFailed:
            return
        self._home.write_soon(write.run, partial(self._ended, write))

    def _ended(self, write: Write, _: None, bug: BaseException | None) -> None:
        if bug is not None:
            raise bug
        if self._write is write:
            # Else somebody could not wait, and has done all this.
            self._is_asked = False
            self._end_now(write)
            if self._dones:
                self._begin_write()
            self._is_asked = True

    def _end_now(self, write: Write) -> StorageFailed | None:
        self._write = None
        write.run()
        return self._end(write)

    def _take_staged(self) -> Write:
        """All that is staged as one write with its files open; what is staged from now on goes behind it."""
        # A roll that was planned for a batch which was then refused waits for the next one.
        waiting = self._rolls[-1:] if self._rolls and self._rolls[-1][0] == len(self._staged) else []
        rolls = self._rolls[: len(self._rolls) - len(waiting)]
        runs = split_runs(self.segments, self._staged, rolls) if rolls else []
        runs = runs or [Run(self.segments.active, self._staged, None)]
        self.folder_changed |= bool(rolls) or self.segments.active.size_bytes == 0
        try:
            open_runs(self.segments, runs)
        except OSError as error:
            raise self._undo(runs, error) from error
        changes = self._producers.staged_count if self._producers is not None else 0
        write = Write(runs, self.end_offset, changes, self._dones, len(self._staged) <= self._announced)
        self._staged, self._dones = [], []
        self._announced = 0
        self._rolls = [(0, snapshot) for _, snapshot in waiting]
        return write

    def _end(self, write: Write) -> StorageFailed | None:
        """A write is over: its batches are the log's, or it is as if they had never been staged."""
        if write.failure is not None:
            self._dones = write.dones + self._dones
            return self._undo(write.runs, write.failure, is_announced=write.is_announced)
        for run in write.runs:
            if run.snapshot is not None:
                self._close_active(run.snapshot)
                self.segments.segments.append(run.segment)
            run.segment.is_warm = True
            self._take_over(run.segment, run.batches)
        self._wrote(write.end_offset, write.producer_changes)
        if write.runs[-1].snapshot is not None:
            self._home.seal_soon(self)
        for done in write.dones:
            done(None)
        return None

    def _ready_indexes(self, active: Segment) -> None:
        if active.offsets is None or active.times is None or active.aborted is None:
            self._load_indexes(active)
        # They grow beyond their files now: opening another file must not drop them.
        active.has_index_files = False

    def _open_active(self, active: Segment) -> File:
        if active.size_bytes == 0:
            self.folder_changed = True
        return self.segments.open(active, create=active.size_bytes == 0)

    def _load_indexes(self, active: Segment) -> None:
        try:
            self.segments.load_indexes(active)
            aborted_of(self.segments, active)
        except (OSError, CorruptBatch) as error:
            raise self._undo([], error) from error

    def _take_over(self, segment: Segment, batches: Sequence[StagedBatch]) -> None:
        interval_bytes = self.config.index_interval_bytes
        size_bytes = segment.size_bytes
        for batch in batches:
            if segment.extended(len(batch.data), batch.last_offset, batch.max_timestamp, interval_bytes):
                assert segment.offsets is not None
                if len(segment.offsets) >= index_entries_max(self.config):
                    self._limits = FULL
        self.size_bytes += segment.size_bytes - size_bytes

    def _close_active(self, snapshot: bytes) -> None:
        self.segments.active.close_time_index()
        self.unsealed.append((self.segments.active, snapshot))

    def _wrote(self, end_offset: int, producer_changes: int | None = None) -> None:
        self.written_offset = end_offset
        if self._producers is not None:
            aborted = self._producers.keep_staged(producer_changes)
            if aborted:
                self.segments.add_aborted(aborted)
        if self._is_flushed_by_time and not self.flush_is_due:
            self.flush_is_due = True
            self._home.flush_later(self)
        is_flush_due = self.written_offset - self.durable_offset >= self.config.flush_messages
        if is_flush_due and not self.config.acks_wait_for_disk:
            # Where acks wait, whoever gives them asks for a sync himself, and would wait for ours first.
            self._home.flush_soon(self)

    def _undo(self, runs: list[Run], error: Exception, *, is_announced: bool = True) -> StorageFailed:
        """Be as before anything was staged; the refusal to raise."""
        failed = StorageFailed(f"{self.segments.folder}: {error}")
        try:
            undo_runs(self.segments, runs)
        except OSError as second:
            # Bytes that nobody was promised stand behind the end: nothing may follow them.
            self.fail(f"{self.segments.folder} could not be cut back: {second}", can_heal=True)
        self.folder_changed = True
        is_announced = is_announced and len(self._staged) <= self._announced
        if not self._is_asked and not is_announced:
            # Their caller has yet to ask for them to be written: it is informed then.
            self._unreported = failed
        self._staged.clear()
        self._announced = 0
        self._rolls.clear()
        if self._producers is not None:
            self._producers.undo_staged()
        self.end_offset = self.written_offset
        self._look_at_the_tail()
        dones, self._dones = self._dones, []
        for done in dones:
            done(failed)
        return failed
