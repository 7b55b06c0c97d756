"""The log of a partition on disk: implements `ports.disk.PartitionLog`, composed of parts.

stage ─► Staging ─► Appender ─► Segments ◄─ Reader ◄─ read
            │           │          │
      ProducerState  Durability  Health    drop: `dropping`; truncate: `truncation`; compact: `segment_swap`
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from runnel.batch.errors import CorruptBatch
from runnel.disk.aborted_on_disk import aborted_of
from runnel.disk.appender import Appender
from runnel.disk.blocking_read import Plan, SegmentsRead
from runnel.disk.durability import Durability
from runnel.disk.folder_lease import FolderLease
from runnel.disk.health import Health, nothing
from runnel.disk.home import Home
from runnel.disk.producer_state import ProducerState
from runnel.disk.reader import Reader
from runnel.disk.segment import Segment
from runnel.disk.segment_swap import SegmentSwap, end_swap
from runnel.disk.segments import Segments
from runnel.disk.staged_write import Done
from runnel.disk.staging import Staging
from runnel.disk.truncation import Restart, Steps, Truncation, run_now
from runnel.log.epochs import Epochs
from runnel.log.idempotency import FoundKeys
from runnel.log.producers import Guard, Producers
from runnel.model.errors import ApiError, ErrorCode, StorageFailed
from runnel.model.ids import TopicPartition
from runnel.model.log_config import FOREVER, FlushPolicy, LogConfig
from runnel.ports.disk import BlockingRead, ProducerView, TimestampedOffset, Verified
from runnel.ports.files import File


class DiskLog:
    """The records of one partition on this node."""

    __slots__ = (
        "_flush_messages",
        "_home",
        "_is_first_use_near",
        "_is_flushed_by_time",
        "_staging",
        "appender",
        "cleaning",
        "config",
        "durability",
        "epochs",
        "flush_is_due",
        "health",
        "name",
        "on_truncated",
        "producer_state",
        "read",
        "reader",
        "segments",
        "stage",
        "stage_all",
        "swap",
        "topic_id",
        "truncation",
        "truncations",
        "was_closed_cleanly",
        "write_staged",
    )

    def __init__(
        self,
        name: TopicPartition,
        topic_id: bytes,
        config: LogConfig,
        home: Home,
        segments: Segments,
        *,
        epochs: Epochs,
        producers: Producers | None,
    ) -> None:
        self.name, self.topic_id, self._home = name, topic_id, home
        self.segments, self.epochs = segments, epochs
        self.health = Health(self._repair_later)
        self.durability = Durability(segments)
        self.producer_state = ProducerState(segments, producers, home.steady_ms, self._load_soon)
        self.reader = Reader(name, segments)
        self._staging = Staging(config, segments, epochs, self.producer_state, self.durability, self.health)
        self.appender = Appender(
            self._staging,
            segments,
            self.producer_state,
            self.durability,
            self.health,
            home,
            on_written=self._written,
            on_rolled=self._rolled,
            load_soon=self._load_soon,
        )
        self.swap: SegmentSwap | None = None
        """The swap of compacted segments in progress."""
        self.cleaning: FolderLease | None = None
        self.truncation: Steps | None = None
        """The truncation in progress."""
        self.truncations = 0
        self.on_truncated: Callable[[], None] = lambda: None
        self.was_closed_cleanly = False
        """Was it closed cleanly by the last run? Otherwise visible records may have been lost."""
        self._is_first_use_near = True
        self.flush_is_due = False
        """Is a timed flush due already?"""
        # Bound directly, because every request calls them.
        self.stage = self._staging.stage
        self.stage_all = self._staging.stage_all
        self.write_staged = self.appender.write_staged
        self.read = self.reader.read
        self.configure(config)

    @property
    def log_start_offset(self) -> int:
        return self.segments.log_start_offset

    @property
    def end_offset(self) -> int:
        return self._staging.end_offset

    @property
    def written_offset(self) -> int:
        return self.segments.segments[-1].next_offset

    @property
    def durable_offset(self) -> int:
        return self.durability.durable_offset

    @property
    def high_watermark(self) -> int:
        return self.producer_state.high_watermark

    @property
    def last_stable_offset(self) -> int:
        return self.producer_state.last_stable_offset

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    @property
    def failure(self) -> str | None:
        return self.health.failure

    @property
    def is_damaged(self) -> bool:
        return self.health.is_damaged

    @property
    def leader_epoch(self) -> int:
        return self.epochs.latest

    def configure(self, config: LogConfig) -> None:
        self.config = config
        self._is_flushed_by_time = config.flush_policy is FlushPolicy.INTERVAL or config.flush_ms < FOREVER
        # Where acknowledgements wait for a sync, their owner requests it and must not wait for another first.
        self._flush_messages = FOREVER if config.acks_wait_for_disk else config.flush_messages
        self.appender.configure(config)

    def advance_high_watermark(self, offset: int) -> None:
        self.producer_state.advance_high_watermark(offset)

    def write_later(self, done: Done) -> bool:
        return self.appender.write_later(done)

    def settle(self) -> None:
        """Return when nothing is staged and no write is in flight."""
        self.appender.settle()

    def roll_now(self) -> None:
        """Roll a new segment."""
        self.appender.roll_now()

    def read_batches(
        self, offset: int, max_bytes: int, end_offset: int
    ) -> BlockingRead[Sequence[memoryview]]:
        return self.reader.read_batches(offset, max_bytes, end_offset)

    def find_timestamp(self, timestamp_ms: int, end_offset: int) -> BlockingRead[TimestampedOffset | None]:
        return self.reader.find_timestamp(timestamp_ms, end_offset)

    def find_max_timestamp(self, end_offset: int) -> BlockingRead[TimestampedOffset | None]:
        return self.reader.find_max_timestamp(end_offset)

    def aborted_transactions(
        self, first_offset: int, end_offset: int, *, may_block: bool = True
    ) -> list[tuple[int, int]]:
        return self.reader.aborted_transactions(first_offset, end_offset, may_block=may_block)

    def find_keys(self, offset: int, max_bytes: int, end_offset: int) -> BlockingRead[FoundKeys]:
        return self.reader.find_keys(offset, max_bytes, end_offset)

    def verify(self, offset: int, max_bytes: int) -> BlockingRead[Verified]:
        return self.reader.verify(offset, max_bytes, lambda: self.epochs.entries)

    def begin_epoch(self, leader_epoch: int) -> None:
        self.durability.epochs_changed |= self.epochs.assign(leader_epoch, self.end_offset)

    def epoch_end(self, leader_epoch: int) -> tuple[int, int]:
        return self.epochs.end_of(leader_epoch, self.end_offset)

    def epoch_of(self, offset: int) -> int:
        return self.epochs.epoch_of(offset)

    def producers(self) -> Iterable[ProducerView]:
        for producer in self.producer_state.get():
            yield ProducerView(
                producer.producer_id,
                producer.epoch,
                producer.last_sequence,
                producer.last_timestamp,
                producer.coordinator_epoch,
                producer.transaction_start_offset,
            )

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        return self.producer_state.get().has_open_transaction(producer_id, producer_epoch)

    @property
    def open_transaction_ms(self) -> int | None:
        producers = self.producer_state.loaded
        seen_ms = None if producers is None else producers.oldest_open_ms
        return None if seen_ms is None else max(0, self.steady_ms() - seen_ms)

    def guard_transaction(self, producer_id: int, producer_epoch: int, base_sequence: int) -> Guard:
        producers = self.producer_state.get()
        return producers.guard(producer_id, producer_epoch, base_sequence, self.steady_ms())

    def is_guarded(self, guard: Guard) -> bool:
        return self.producer_state.get().is_guarded(guard)

    def check_guard(self, guard: Guard, base_sequence: int, *, needs_start: bool) -> None:
        self.producer_state.get().check_guard(guard, base_sequence, needs_start=needs_start)

    def check_marker(self, producer_id: int, producer_epoch: int, transaction_version: int) -> None:
        self.producer_state.get().check_marker(producer_id, producer_epoch, transaction_version)

    def delete_records_before(
        self, offset: int, done: Callable[[ApiError | None], None] = lambda error: None
    ) -> None:
        if offset > self.high_watermark:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name}: {offset} is above the high watermark {self.high_watermark}",
            )
        if offset <= self.log_start_offset and self.durability.start_is_in_file_names:
            done(None)
        else:
            self._home.advance_log_start(self, offset, done)

    def truncate_to(self, offset: int) -> None:
        if self.failure is not None:
            raise StorageFailed(self.failure)
        try:
            run_now(Truncation(self, offset))
        except (OSError, CorruptBatch) as error:
            # The state in memory may differ from the files; the next start recovers the log.
            self.fail(f"{self.segments.folder} could not be truncated: {error}", can_repair=False)
            raise StorageFailed(str(self.failure)) from error

    def truncate_later(self, offset: int, done: Done) -> None:
        self._home.truncate_soon(Truncation(self, offset), done)

    def restart_at(self, offset: int, done: Done) -> None:
        self._home.truncate_soon(Restart(self, offset), done)

    # For the data directory.

    def steady_ms(self) -> int:
        return self._home.steady_ms()

    def fail(self, reason: str, *, can_repair: bool) -> None:
        """Reject writes from now on; reads are served."""
        self.health.fail(reason, can_repair=can_repair)

    def closed_segments(self) -> list[Segment]:
        """The closed segments, oldest first."""
        return self.segments.segments[:-1]

    def segment_file(self, segment: Segment) -> File:
        """The file of a segment; it stays open while it is referenced."""
        return self.segments.open(segment)

    @property
    def droppable_count(self) -> int:
        """The number of the oldest segments that may be deleted: those that no thread uses.

        They are sealed: durable, with indexes and the producer snapshot at their end.
        """
        busy = [segment for segment, _ in self.durability.unsealed]
        if self.swap is not None:
            busy += self.swap.old
        first = min((segment.base_offset for segment in busy), default=self.segments.active.base_offset)
        return self.segments.segment_of(first)

    def finish_swap(self) -> bool:
        """Wait until no thread renames segments, which blocks; False if a swap cannot complete."""
        swap = self.swap
        if swap is None:
            return True
        swap.run()
        with suppress(OSError):
            # The cleaner receives it, too, and reports it.
            end_swap(self, swap)
        return not swap.is_decided

    def cleaner_files(self) -> FolderLease:
        """A lease on the files for compaction, revoked when the log is removed."""
        if self.cleaning is None:
            self.cleaning = FolderLease(self.segments.files)
        return self.cleaning

    def abandon_changes(self) -> None:
        """Revoke the leases of compaction and truncation: the log is being removed."""
        self.cleaner_files().revoke()
        self.swap = None
        if self.truncation is not None:
            self.truncation.abandon()
            self.truncation = None

    def detach(self) -> None:
        """The log is removed: without references from its parts, it is freed as soon as it is not used.

        Cycles would not be freed for as long as the process runs (`server/process.py`).
        """
        self.on_truncated = nothing
        self.health.detach()
        self.producer_state.detach()
        self.appender.detach()

    def begin_truncation(self, end_offset: int) -> list[Callable[[], None]]:
        """Lower all durable offsets before truncation to this offset: what makes that durable."""
        waits = self._home.interrupt_sync(self)
        self.durability.truncate(end_offset)
        return waits + self._home.truncate_checkpoints(self, end_offset)

    def forget_epochs_from(self, offset: int) -> None:
        """Forget epochs that begin at this offset or later, without a record."""
        self.durability.epochs_changed |= self.epochs.truncate_to(offset)

    def restarted(self, offset: int) -> None:
        """All segments were replaced by an empty one that begins at `offset`."""
        self.epochs.truncate_to(0)
        self.producer_state.high_watermark = offset
        self.truncated(offset, Producers())

    def truncated(self, end_offset: int, producers: Producers) -> None:
        """The segments end at this offset now, with these producers: truncate all other parts."""
        self.truncations += 1
        self.forget_epochs_from(end_offset)
        self.producer_state.truncated(end_offset, producers)
        self.appender.truncated()
        self.segments_changed()
        self.on_truncated()

    def segments_changed(self) -> None:
        """Segments were removed, replaced or truncated."""
        self.segments.changed()
        self.reader.segments_changed()

    def discard(self, paths: list[str]) -> None:
        """Remove these files after `file.delete.delay.ms`."""
        self._home.discard(paths, self.config.file_delete_delay_ms)

    def closed_durably(self) -> None:
        """Everything is durable, with a producer snapshot at the end."""
        self.producer_state.closed()
        self.durability.synced_all()

    def load_ahead(self) -> SegmentsRead[Producers | None]:
        """Load in a thread the indexes and producer state for the first append."""
        return SegmentsRead(self.segments, self._plan_load)

    def _plan_load(self) -> Plan[Producers | None]:
        state = self.producer_state

        def load(view: Segments) -> Producers | None:
            view.load_indexes(view.active)
            producers = state.load(view) if needs_producers else None
            aborted_of(view, view.active)
            return producers

        needs_producers = state.loaded is None
        return Plan(self.segments.segments[0].base_offset, self.segments.active.base_offset, load)

    def load_once(self) -> bool:
        """Load indexes and producer state ahead after a start; True if anything was not loaded."""
        if not self._is_first_use_near:
            return False
        self._is_first_use_near = False
        active = self.segments.active
        if self.producer_state.loaded is None or (active.size_bytes and active.offsets is None):
            self._load_soon()
            return True
        return False

    def loaded_ahead(self, producers: Producers | None) -> None:
        """Install loaded indexes and, unless loaded before, the producer state."""
        if producers is not None:
            self.producer_state.install(producers)

    def _load_soon(self) -> None:
        self._home.load_soon(self)

    def _rolled(self) -> None:
        self._home.seal_soon(self)

    def _repair_later(self) -> None:
        self._home.repair_later(self)

    def _written(self) -> None:
        if self._is_flushed_by_time and not self.flush_is_due:
            self.flush_is_due = True
            self._home.flush_later(self)
        flush_messages = self._flush_messages
        if flush_messages < FOREVER and self.written_offset - self.durable_offset >= flush_messages:
            self._home.flush_soon(self)
