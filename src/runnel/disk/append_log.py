"""The writing half of a log: batches are staged one by one and written together.

stage (check, give offsets, patch) … write_staged (one writev) … sync (fdatasync in a thread)
end_offset ≥                       written_offset ≥             durable_offset
"""

from collections.abc import Sequence

from runnel.batch.control import read_end_marker
from runnel.batch.errors import CorruptBatch
from runnel.batch.header import patch_offset_and_epoch
from runnel.disk.appending import Run, split_runs, undo_runs, write_all, write_runs
from runnel.disk.home import Home
from runnel.disk.log_files import LogFiles
from runnel.disk.producers_on_disk import load_producers, read_snapshot
from runnel.disk.segment import Segment
from runnel.log.epochs import Epochs
from runnel.log.producer_snapshot import encode_producers
from runnel.log.producers import Producers
from runnel.log.rolling import FULL, index_entries_max, limits_of, limits_of_empty
from runnel.log.validation import ValidBatch, validate, validate_copies
from runnel.model.errors import StorageFailed
from runnel.model.ids import TopicPartition
from runnel.model.log_config import FOREVER, FlushPolicy, LogConfig
from runnel.ports.disk import Origin, Staged
from runnel.ports.files import File

_CLIENT = Origin.CLIENT
_REPLICA = Origin.REPLICA
_WALKED_BYTES_MAX = 64 * 1024
"""A segment larger than this gets a producer snapshot at its end also when there are no producers."""


class AppendLog:
    """A log as those who write to it see it."""

    __slots__ = (
        "_hints",
        "_home",
        "_is_flushed_by_time",
        "_limits",
        "_producers",
        "_rolls",
        "_staged",
        "_tail_bytes",
        "can_heal",
        "config",
        "drops",
        "drops_durable",
        "durable_offset",
        "end_offset",
        "epochs",
        "epochs_changed",
        "failure",
        "flush_is_due",
        "folder_changed",
        "is_damaged",
        "is_new",
        "log_start_offset",
        "loose_snapshot_offset",
        "name",
        "segments",
        "size_bytes",
        "sync_ceiling",
        "topic_id",
        "unsealed",
        "written_offset",
    )

    def __init__(
        self,
        name: TopicPartition,
        topic_id: bytes,
        config: LogConfig,
        home: Home,
        segments: LogFiles,
        *,
        log_start_offset: int,
        epochs: Epochs,
        producers: Producers | None,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.config = config
        self.segments = segments
        self.epochs = epochs
        self.log_start_offset = log_start_offset
        self.end_offset = self.written_offset = self.durable_offset = segments.active.next_offset
        self.size_bytes = sum(segment.size_bytes for segment in segments.segments)
        self.unsealed: list[tuple[Segment, bytes | None]] = []
        """Closed segments not yet durable with all that belongs to them, and the producers at their end."""
        self.epochs_changed = False
        self.folder_changed = False
        """Were files made, renamed or cut in our folder, and could a power cut still undo it?"""
        self.drops = self.drops_durable = 0
        """How often old segments were let go, and how often of that a power cut can no longer undo."""
        self.is_new = False
        """Was our folder made in this run, and could a power cut still take it?"""
        self.sync_ceiling = FOREVER
        """How low the log was cut while a sync was under way: that sync proves nothing above."""
        self.flush_is_due = False
        """Does our home know that `flush.ms` runs?"""
        self.loose_snapshot_offset = -1
        """A producer snapshot at the end of the last clean run, which no segment is named after."""
        self.failure: str | None = None
        """Why nothing may be written."""
        self.can_heal = False
        """May the files be looked at again, and all be well?"""
        self.is_damaged = False
        """Are records unreadable that were durable? Then no file is touched, for a person to look at them."""
        self._home = home
        self._producers = producers
        """None while nobody has asked since a clean start."""
        self._limits = limits_of_empty(0)
        """What the next batch may not exceed if it is to join the same segment as the last one."""
        self._hints: dict[int, tuple[Segment, int]] = {}
        self._staged: list[ValidBatch] = []
        self._rolls: list[tuple[int, bytes]] = []
        """Before which staged batches a new segment begins, and the producers at that moment."""
        self._look_at_the_tail()
        self.configure(config)

    @property
    def leader_epoch(self) -> int:
        return self.epochs.latest

    @property
    def recovery_point(self) -> int:
        """Everything below need not be looked at after a crash: it is durable, and so is all beside it."""
        if not self.unsealed:
            return self.durable_offset
        return min(self.durable_offset, self.unsealed[0][0].base_offset)

    @property
    def start_is_told_by_files(self) -> bool:
        """Does the name of the first segment tell where the log begins, also after a power cut?"""
        is_first = self.log_start_offset == self.segments.segments[0].base_offset
        return is_first and self.drops == self.drops_durable

    @property
    def needs_sync(self) -> bool:
        """Could a power cut change anything here?"""
        return (
            self.durable_offset < self.written_offset
            or self.folder_changed
            or self.epochs_changed
            or self.is_new
            or bool(self.unsealed)
        )

    @property
    def has_unsaved_producers(self) -> bool:
        """Is a snapshot missing at the end of the log, without which recovery would have to walk?"""
        if self.loose_snapshot_offset == self.written_offset:
            return False
        if self.segments.active.size_bytes > _WALKED_BYTES_MAX:
            return True
        return self._producers is None or len(self._producers) > 0

    def configure(self, config: LogConfig) -> None:
        self.config = config
        self._is_flushed_by_time = config.flush_policy is FlushPolicy.INTERVAL or config.flush_ms < FOREVER
        if not self._staged and not self._rolls:
            self._look_at_the_tail()

    def begin_epoch(self, leader_epoch: int) -> None:
        self.epochs_changed |= self.epochs.assign(leader_epoch, self.end_offset)

    def producer_state(self) -> Producers:
        """Who produces here, loaded on first use."""
        if self._producers is None:
            # No producer has written since the snapshot of the clean shutdown, or we would have been asked.
            self._producers = read_snapshot(self.segments, self.loose_snapshot_offset)
            if self._producers is None:
                now_ms = self._home.now_ms()
                self._producers, _ = load_producers(self.segments, self.written_offset, now_ms)
        return self._producers

    def fail(self, reason: str, *, can_heal: bool) -> None:
        """Take nothing more, for this reason; reading goes on."""
        self.failure = reason
        self.can_heal = can_heal
        if can_heal:
            self._home.heal_later(self)

    def heal(self) -> None:
        """The files are as they should be again."""
        self.failure = None
        self.can_heal = False

    def forget_hints(self) -> None:
        """Batches have moved: readers search for their places again."""
        self._hints.clear()

    def discard(self, paths: list[str]) -> None:
        """Remove these files once `file.delete.delay.ms` is over."""
        self._home.discard(paths, self.config.file_delete_delay_ms)

    def stage(self, records: memoryview, leader_epoch: int, now_ms: int, origin: Origin) -> Staged:
        if self.failure is not None:
            raise StorageFailed(self.failure)
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

    def _stage_producer(
        self, batch: ValidBatch, base_offset: int, now_ms: int, from_client: bool
    ) -> Staged | None:
        """Admit the batch of an idempotent producer; if it came before, where it went then."""
        header = batch.header
        if header.is_control:
            marker = read_end_marker(batch.data)
            if marker is not None:
                self.producer_state().stage_marker(header, marker, now_ms)
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
        assert not self._staged
        segment = Segment(self.written_offset)
        segment.start_indexes()
        self.segments.open(segment, create=True)
        self.folder_changed = True
        self._close_active(encode_producers(self.producer_state()))
        self.segments.segments.append(segment)
        self._rolls.clear()
        self._look_at_the_tail()
        self._home.seal_soon(self)

    def was_cut(self, end_offset: int) -> None:
        """The log's end was taken off: nothing that was remembered of it is true any more."""
        assert not self._staged
        self.end_offset = self.written_offset = end_offset
        self.epochs_changed |= self.epochs.truncate_to(end_offset)
        self.loose_snapshot_offset = -1
        self._producers, _ = load_producers(self.segments, end_offset, self._home.now_ms())
        self.forget_hints()
        self._rolls.clear()
        self._look_at_the_tail()

    def store_recovery_point(self) -> None:
        """Write down that less is durable than was; durable on return."""
        self._home.store_recovery_points()

    def closed_durably(self) -> None:
        """All that there is has reached the disk, with a snapshot of the producers at the end."""
        if self.has_unsaved_producers:
            self.loose_snapshot_offset = self.written_offset
        self.durable_offset = self.written_offset
        self.drops_durable = self.drops
        self.unsealed = []
        self.epochs_changed = self.folder_changed = self.is_new = False

    def expire_producers(self, now_ms: int) -> None:
        """Forget producers that have not been heard of for long."""
        if self._producers is not None and len(self._producers):
            self._producers.expire(now_ms, self.config.producer_id_expiration_ms)

    def write_staged(self) -> None:
        staged = self._staged
        if not staged:
            return
        active = self.segments.active
        if active.offsets is None:
            self._load_indexes(active)
        # They grow beyond their files now: opening another file must not drop them.
        active.has_index_files = False
        if self._rolls:
            self._write_with_rolls()
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
        self._wrote()

    def _write_with_rolls(self) -> None:
        # A roll that was planned for a batch which was then refused waits for the next one.
        waiting = self._rolls[-1:] if self._rolls[-1][0] == len(self._staged) else []
        runs = split_runs(self.segments, self._staged, self._rolls[: len(self._rolls) - len(waiting)])
        try:
            write_runs(self.segments, runs)
        except OSError as error:
            raise self._undo(runs, error) from error
        self.folder_changed = True
        for run in runs:
            if run.snapshot is not None:
                self._close_active(run.snapshot)
                self.segments.segments.append(run.segment)
            self._take_over(run.segment, run.batches)
        self._rolls = [(0, snapshot) for _, snapshot in waiting]
        self._wrote()
        self._home.seal_soon(self)

    def _open_active(self, active: Segment) -> File:
        if active.size_bytes == 0:
            self.folder_changed = True
        return self.segments.open(active, create=active.size_bytes == 0)

    def _load_indexes(self, active: Segment) -> None:
        try:
            self.segments.load_indexes(active)
        except (OSError, CorruptBatch) as error:
            raise self._undo([], error) from error

    def _take_over(self, segment: Segment, batches: Sequence[ValidBatch]) -> None:
        interval_bytes = self.config.index_interval_bytes
        size_bytes = segment.size_bytes
        for batch in batches:
            if segment.appended(batch.header, interval_bytes):
                assert segment.offsets is not None
                if len(segment.offsets) >= index_entries_max(self.config):
                    self._limits = FULL
        self.size_bytes += segment.size_bytes - size_bytes

    def _close_active(self, snapshot: bytes) -> None:
        self.segments.active.close_time_index()
        self.unsealed.append((self.segments.active, snapshot))

    def _wrote(self) -> None:
        self._staged.clear()
        self.written_offset = self.end_offset
        if self._producers is not None:
            self._producers.keep_staged()
        if self._is_flushed_by_time and not self.flush_is_due:
            self.flush_is_due = True
            self._home.flush_later(self)
        if self.written_offset - self.durable_offset >= self.config.flush_messages:
            self._home.flush_soon(self)

    def _undo(self, runs: list[Run], error: Exception) -> StorageFailed:
        """Be as before anything was staged; the refusal to raise."""
        failed = StorageFailed(f"{self.segments.folder}: {error}")
        try:
            undo_runs(self.segments, runs)
        except OSError as second:
            # Bytes that nobody was promised stand behind the end: nothing may follow them.
            self.fail(f"{self.segments.folder} could not be cut back: {second}", can_heal=True)
        self.folder_changed = True
        self._staged.clear()
        self._rolls.clear()
        if self._producers is not None:
            self._producers.undo_staged()
        self.end_offset = self.written_offset
        self._look_at_the_tail()
        return failed

    def _look_at_the_tail(self) -> None:
        """What the next batch joins: the active segment as it is."""
        active = self.segments.active
        self._tail_bytes = active.size_bytes
        if active.size_bytes == 0:
            self._limits = limits_of_empty(active.base_offset)
        elif active.offsets is not None and len(active.offsets) >= index_entries_max(self.config):
            self._limits = FULL
        else:
            self._limits = limits_of(
                self.config, active.base_offset, active.first_timestamp, active.created_ms
            )
