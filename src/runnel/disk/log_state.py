"""What is known of a log while it is open, and what follows from that."""

from runnel.batch.errors import CorruptBatch
from runnel.disk.appending import StagedBatch
from runnel.disk.home import Home
from runnel.disk.log_files import LogFiles
from runnel.disk.producers_on_disk import load_producers, read_snapshot
from runnel.disk.segment import Segment
from runnel.disk.segment_swap import SegmentSwap
from runnel.disk.writing import Done, Write
from runnel.log.epochs import Epochs
from runnel.log.producers import Producers
from runnel.log.rolling import FULL, index_entries_max, limits_of, limits_of_empty
from runnel.log.validation import takes_plain_batches
from runnel.model.errors import StorageFailed
from runnel.model.ids import TopicPartition
from runnel.model.log_config import FOREVER, FlushPolicy, LogConfig

_WALKED_BYTES_MAX = 64 * 1024
"""A segment larger than this gets a producer snapshot at its end also when there are no producers."""


class LogState:
    """Offsets, segments, epochs and producers of one log, and how much of them a power cut could take."""

    __slots__ = (
        "_announced",
        "_dones",
        "_hints",
        "_home",
        "_is_asked",
        "_is_flushed_by_time",
        "_limits",
        "_producers",
        "_recent_mark",
        "_recent_offset",
        "_rolls",
        "_staged",
        "_tail_bytes",
        "_takes_plain_batches",
        "_unreported",
        "_write",
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
        "generation",
        "high_watermark",
        "is_damaged",
        "is_new",
        "log_start_offset",
        "loose_snapshot_offset",
        "name",
        "segments",
        "size_bytes",
        "swap",
        "sync_ceiling",
        "topic_id",
        "truncations",
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
        self.name, self.topic_id = name, topic_id
        self.segments, self.epochs = segments, epochs
        self.log_start_offset = log_start_offset
        self.end_offset = self.written_offset = self.durable_offset = segments.active.next_offset
        self.size_bytes = sum(segment.size_bytes for segment in segments.segments)
        self.unsealed: list[tuple[Segment, bytes | None]] = []
        """Closed segments not yet durable with all that belongs to them, and the producers at their end."""
        self.epochs_changed = self.folder_changed = False
        """Was anything in our folder made, renamed, cut or outdated, and could a power cut still undo it?"""
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
        self._home, self._producers = home, producers
        """None while nobody has asked since a clean start."""
        self._limits = limits_of_empty(0)
        """What the next batch may not exceed if it is to join the same segment as the last one."""
        self._start_writing()
        self._start_reading()
        self.configure(config)

    def _start_writing(self) -> None:
        self._staged: list[StagedBatch] = []
        self._rolls: list[tuple[int, bytes]] = []
        """Before which staged batches a new segment begins, and the producers at that moment."""
        self._write: Write | None = None
        """The write that a thread is doing. What is staged goes behind it."""
        self._dones: list[Done] = []
        """Who is to be told when what is staged has been written in its turn."""
        self._announced = 0
        """How many of the staged batches `write_later` was called for: `_dones` receive their outcome."""
        self._is_asked = True
        """Does a caller wait for the outcome of what is being written?"""
        self._unreported: StorageFailed | None = None
        """Why staged batches were undone before their caller asked for them to be written."""

    def _start_reading(self) -> None:
        self.high_watermark = self.log_start_offset
        self.truncations = 0
        self.swap: SegmentSwap | None = None
        """The swap that a thread carries out."""
        self.generation = 0
        """Rises whenever segments are removed, replaced or truncated."""
        self._recent_offset = self._recent_mark = self.end_offset
        """From here on all is so young that it is in the page cache; and where that will be next."""
        self._hints: dict[int, tuple[Segment, int]] = {}
        """Where sequential readers will read next."""

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
    def droppable_count(self) -> int:
        """How many of the oldest segments may be dropped: those that no thread works on.

        They are sealed: durable, with indexes and the producer snapshot at their end.
        """
        busy = [segment for segment, _ in self.unsealed] + (self.swap.old if self.swap is not None else [])
        first = min((segment.base_offset for segment in busy), default=self.segments.active.base_offset)
        return self.segments.segment_of(first)

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
        self._takes_plain_batches = takes_plain_batches(config)
        self._is_flushed_by_time = config.flush_policy is FlushPolicy.INTERVAL or config.flush_ms < FOREVER
        if not self._staged and not self._rolls and self._write is None:
            self._look_at_the_tail()

    def begin_epoch(self, leader_epoch: int) -> None:
        self.epochs_changed |= self.epochs.assign(leader_epoch, self.end_offset)

    def producer_state(self) -> Producers:
        """Who produces here, loaded on first use."""
        if self._producers is None:
            try:
                self._producers = self._load_producers()
            except (OSError, CorruptBatch) as error:
                raise StorageFailed(f"{self.segments.folder}: {error}") from error
        return self._producers

    def _load_producers(self) -> Producers:
        # No producer has written since the snapshot of the clean shutdown, or we would have been asked.
        producers = read_snapshot(self.segments, self.loose_snapshot_offset)
        if producers is None:
            producers, _ = load_producers(
                self.segments, self.written_offset, self._home.now_ms(), self.high_watermark
            )
        return producers

    def advance_high_watermark(self, offset: int) -> None:
        if offset > self.high_watermark:
            self.high_watermark = min(offset, self.written_offset)
            if self._producers is not None:
                self._producers.forget_ended(self.high_watermark)

    def note_time_passed(self) -> None:
        """What was written before the last call is no longer young: it may have left the page cache."""
        self._recent_offset, self._recent_mark = self._recent_mark, self.written_offset

    def heal(self) -> None:
        """The files are as they should be again."""
        self.failure = None
        self.can_heal = False

    def forget_hints(self) -> None:
        """Batches have moved: readers search for their places again."""
        self._hints.clear()
        self.generation += 1
        self.segments.with_aborted = None

    def discard(self, paths: list[str]) -> None:
        """Remove these files once `file.delete.delay.ms` is over."""
        self._home.discard(paths, self.config.file_delete_delay_ms)

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
        if self._producers is not None:
            self._producers.expire(now_ms, self.config.producer_id_expiration_ms)

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
