"""Stages batches: validates them, assigns offsets, and queues them for writing."""

from collections.abc import Sequence

from runnel.batch.control import read_end_marker
from runnel.batch.header import patch_offset_and_epoch, patch_whole_batch
from runnel.disk.durability import Durability
from runnel.disk.health import Health
from runnel.disk.producer_state import ProducerState
from runnel.disk.segments import Segments
from runnel.disk.staged_write import StagedBatch
from runnel.log.encryption import OVERHEAD_BYTES
from runnel.log.epochs import Epochs
from runnel.log.producer_snapshot import encode_producers
from runnel.log.rolling import FULL, index_entries_max, limits_of, limits_of_empty
from runnel.log.validation import (
    PlainBatch,
    ValidBatch,
    plain_batch,
    takes_plain_batches,
    validate,
    validate_copies,
)
from runnel.model.errors import ApiError, StorageFailed
from runnel.model.log_config import LogConfig
from runnel.ports.disk import Origin, Staged

_CLIENT = Origin.CLIENT
_KEYED = Origin.KEYED
_REPLICA = Origin.REPLICA


class Staging:
    """The staged batches of one log, with their offsets and segment rolls."""

    __slots__ = (
        "_durability",
        "_epochs",
        "_health",
        "_limits",
        "_overhead_bytes",
        "_producers",
        "_segments",
        "_tail_bytes",
        "_takes_plain_batches",
        "batches",
        "config",
        "end_offset",
        "rolls",
        "unreported",
    )

    def __init__(
        self,
        config: LogConfig,
        segments: Segments,
        epochs: Epochs,
        producers: ProducerState,
        durability: Durability,
        health: Health,
    ) -> None:
        self._segments, self._epochs, self._producers = segments, epochs, producers
        self._durability, self._health = durability, health
        self.end_offset = segments.written_offset
        """The next offset to be assigned; staged batches count."""
        self.batches: list[StagedBatch] = []
        self.rolls: list[tuple[int, bytes]] = []
        """Before which staged batches a new segment begins, and the producers at that moment."""
        self.unreported: StorageFailed | None = None
        """The error of batches that were rolled back before their caller requested the write."""
        self._overhead_bytes = 0
        """How much larger than it is the next batch is stored, because it is encrypted."""
        self.configure(config)
        self._tail_bytes = 0
        self._limits = limits_of_empty(0)
        """The limits beyond which the next batch rolls a new segment."""
        self.measure_tail()

    def configure(self, config: LogConfig) -> None:
        self.config = config
        self._takes_plain_batches = takes_plain_batches(config)
        if self.rolls:
            self._overhead_bytes = OVERHEAD_BYTES if config.encryption_enable else 0

    def stage(self, records: memoryview, leader_epoch: int, now_ms: int, origin: Origin) -> Staged:
        """Validate a batch, assign its offsets and queue it for writing. Raises ApiError."""
        if self._health.failure is not None:
            raise StorageFailed(self._health.failure)
        if self.unreported is not None:
            # Offsets must not be assigned again before the failure of their first batches is reported.
            raise self.unreported
        if origin is _REPLICA:
            return self._stage_copies(records, leader_epoch, now_ms)
        is_keyed = origin is _KEYED
        from_client = is_keyed or origin is _CLIENT
        batch = validate(records, self.config, now_ms, from_client=from_client, is_keyed=is_keyed)
        header = batch.header
        base_offset = self.end_offset
        last_offset = base_offset + header.last_offset_delta
        limits = self._limits
        if (
            self._tail_bytes + len(batch.data) + self._overhead_bytes > limits.size_bytes
            or header.max_timestamp > limits.timestamp_ms
            or last_offset > limits.last_offset
        ):
            self._plan_roll()
        if header.producer_id >= 0:
            earlier = self._stage_producer(batch, base_offset, from_client)
            if earlier is not None:
                return earlier
        patch_offset_and_epoch(batch.data, 0, base_offset, leader_epoch)
        header.base_offset = base_offset
        if leader_epoch > self._epochs.latest:
            self._durability.epochs_changed |= self._epochs.assign(leader_epoch, base_offset)
        if self._tail_bytes == 0:
            self._limits = limits_of(self.config, base_offset, header.max_timestamp, now_ms)
        self._tail_bytes += len(batch.data) + self._overhead_bytes
        self.batches.append(batch)
        self.end_offset = last_offset + 1
        return Staged(base_offset, last_offset, batch.log_append_time_ms, self._segments.log_start_offset)

    def stage_all(
        self, batches: Sequence[memoryview], leader_epoch: int, now_ms: int
    ) -> list[Staged | ApiError]:
        """`stage` for several batches of clients; plain ones are checked by their headers alone."""
        outcomes: list[Staged | ApiError] = []
        count = len(batches)
        while len(outcomes) < count:
            if self._takes_plain_batches:
                self._stage_plain(batches, leader_epoch, now_ms, outcomes)
            if len(outcomes) < count:
                try:
                    outcomes.append(self.stage(batches[len(outcomes)], leader_epoch, now_ms, _CLIENT))
                except ApiError as error:
                    outcomes.append(error)
        return outcomes

    def _stage_plain(
        self,
        batches: Sequence[memoryview],
        leader_epoch: int,
        now_ms: int,
        outcomes: list[Staged | ApiError],
    ) -> None:
        """Stage the next batches while they are plain and join the segment and epoch of the last one."""
        end_offset, tail_bytes, limits = self.end_offset, self._tail_bytes, self._limits
        if tail_bytes == 0 or leader_epoch > self._epochs.latest:
            return
        if self._health.failure is not None or self.unreported is not None:
            return
        config, staged = self.config, self.batches
        size_max = min(config.max_message_bytes, config.segment_bytes)
        latest_ms = min(now_ms + config.message_timestamp_after_max_ms, limits.timestamp_ms)
        log_start_offset, overhead_bytes = self._segments.log_start_offset, self._overhead_bytes
        for index in range(len(outcomes), len(batches)):
            records = batches[index]
            plain = plain_batch(records, size_max, latest_ms)
            if plain is None:
                break
            last_offset, max_timestamp = end_offset + plain[0], plain[1]
            size_bytes = tail_bytes + len(records) + overhead_bytes
            if size_bytes > limits.size_bytes or last_offset > limits.last_offset:
                break
            patch_whole_batch(records, end_offset, leader_epoch)
            staged.append(PlainBatch(records, end_offset, last_offset, max_timestamp))
            outcomes.append(Staged(end_offset, last_offset, -1, log_start_offset))
            end_offset, tail_bytes = last_offset + 1, size_bytes
        self.end_offset, self._tail_bytes = end_offset, tail_bytes

    def _stage_producer(self, batch: ValidBatch, base_offset: int, from_client: bool) -> Staged | None:
        """Check the batch of an idempotent producer; returns the original if it is a duplicate."""
        header = batch.header
        producers, now_ms = self._producers.get(), self._producers.steady_ms()
        if header.is_control:
            marker = read_end_marker(batch.data)
            if marker is not None:
                producers.stage_marker(header, marker, base_offset, now_ms)
            return None
        earlier = producers.stage(header, base_offset, now_ms, from_client=from_client)
        if earlier is None:
            return None
        append_time_ms = earlier.max_timestamp if batch.log_append_time_ms >= 0 else -1
        log_start_offset = self._segments.log_start_offset
        return Staged(
            earlier.base_offset, earlier.last_offset, append_time_ms, log_start_offset, duplicate=True
        )

    def _stage_copies(self, records: memoryview, leader_epoch: int, now_ms: int) -> Staged:
        """Batches as their leader wrote them: offsets, epochs and sequences are assigned already."""
        base_offset = self.end_offset
        batches = validate_copies(records, base_offset, self._epochs.latest, leader_epoch)
        # Before anything is staged, because these may fail.
        markers = [read_end_marker(batch.data) if batch.header.is_control else None for batch in batches]
        if any(batch.header.producer_id >= 0 for batch in batches):
            self._producers.get()
        for batch, marker in zip(batches, markers, strict=True):
            header = batch.header
            limits = self._limits
            if (
                self._tail_bytes + len(batch.data) + self._overhead_bytes > limits.size_bytes
                or header.max_timestamp > limits.timestamp_ms
                or header.last_offset > limits.last_offset
            ):
                self._plan_roll()
            if header.producer_id >= 0:
                self._producers.get().stage_copy(header, marker, self._producers.steady_ms())
            self._durability.epochs_changed |= self._epochs.assign(header.leader_epoch, header.base_offset)
            if self._tail_bytes == 0:
                self._limits = limits_of(self.config, self.end_offset, header.max_timestamp, now_ms)
            self._tail_bytes += len(batch.data) + self._overhead_bytes
            self.batches.append(batch)
            self.end_offset = header.next_offset
        first_offset = batches[0].header.base_offset if batches else base_offset
        return Staged(first_offset, self.end_offset - 1, -1, self._segments.log_start_offset)

    def _plan_roll(self) -> None:
        """Roll a new segment with the next batch."""
        self.rolls.append((len(self.batches), encode_producers(self._producers.get())))
        self._tail_bytes = 0
        self._overhead_bytes = OVERHEAD_BYTES if self.config.encryption_enable else 0
        self._limits = limits_of_empty(self.end_offset)

    def take(self) -> tuple[list[StagedBatch], list[tuple[int, bytes]]]:
        """Take all staged batches for writing."""
        batches, rolls = self.batches, self.rolls
        self.batches, self.rolls = [], []
        if rolls and rolls[-1][0] == len(batches):
            # It was planned for a batch which was then refused, and waits for the next one.
            self.rolls = [(0, rolls.pop()[1])]
        return batches, rolls

    def clear(self) -> None:
        """Roll back all staged batches."""
        self.batches.clear()
        self.rolls.clear()
        if self._producers.loaded is not None:
            self._producers.loaded.undo_staged()
        self.end_offset = self._segments.written_offset
        # An epoch may begin at the end without a record.
        self._durability.epochs_changed |= self._epochs.truncate_to(self.end_offset + 1)
        self.measure_tail()

    def segment_is_full(self) -> None:
        """The index of the active segment is full: the next batch rolls a new segment."""
        self._limits = FULL

    def measure_tail(self) -> None:
        """The next batch is appended to the active segment."""
        active, encrypts = self._segments.active, self.config.encryption_enable
        self._tail_bytes = active.size_bytes
        is_encrypted = active.is_encrypted or (active.size_bytes == 0 and encrypts)
        self._overhead_bytes = OVERHEAD_BYTES if is_encrypted else 0
        if active.size_bytes == 0:
            self._limits = limits_of_empty(active.base_offset)
        elif active.is_encrypted != encrypts:
            # New segments are of the other kind.
            self._limits = FULL
        elif active.offsets is not None and len(active.offsets) >= index_entries_max(self.config):
            self._limits = FULL
        else:
            self._limits = limits_of(self.config, active.base_offset, active.first_timestamp)
