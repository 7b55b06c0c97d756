"""One partition's log on disk: what `ports.disk.PartitionLog` promises."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from runnel.batch.errors import CorruptBatch
from runnel.disk import reading, surgery
from runnel.disk.aborted_on_disk import aborted_in, touch_aborted
from runnel.disk.append_log import AppendLog
from runnel.disk.blocking_read import Plan, SegmentsRead
from runnel.disk.segment import Segment
from runnel.disk.walk import PROBE_BYTES, whole_beginning
from runnel.log.aborted import AbortedTransaction
from runnel.log.producers import Guard
from runnel.model.errors import ApiError, ErrorCode, StorageFailed
from runnel.model.limits import SENDFILE_BYTES_MIN
from runnel.ports.disk import (
    BlockingRead,
    FileSlice,
    NotResident,
    ProducerView,
    Slice,
    TimestampedOffset,
)
from runnel.ports.files import File

TOUCHED_BYTES_MAX = 1024 * 1024
"""How much of a cold log a thread reads at once on behalf of a reader."""
_READ_HINTS_MAX = 16
"""Sequential readers of one log whose places are remembered; more readers than that search the index."""


class DiskLog(AppendLog):
    """The records of one partition on this node."""

    __slots__ = ()

    def read(
        self, offset: int, max_bytes: int, end_offset: int, *, at_least_one: bool, may_block: bool = True
    ) -> Slice:
        written_offset = self.written_offset
        if offset < self.log_start_offset or offset > written_offset:
            raise self._out_of_range(offset)
        end_offset = min(end_offset, written_offset)
        if offset >= end_offset:
            return Slice([], 0)
        try:
            if offset < self._recent_offset and not may_block:
                self._check_residency(offset, max_bytes, end_offset)
            segment, position = self._hints.get(offset) or self.segments.place_of(offset)
            if position >= segment.size_bytes:
                segment, position = self.segments.place_of(offset)
            limit, next_offset = segment.size_bytes, segment.next_offset
            if end_offset < next_offset:
                limit, next_offset = self._place_in(segment, end_offset), end_offset
            size = limit - position
            if size > max_bytes:
                few = self._read_few(segment, position, max_bytes)
                if few is not None:
                    return few
                size, next_offset = reading.whole_batches(
                    self.segments, segment, position, limit, max_bytes, at_least_one
                )
            if size <= 0:
                return Slice([], 0)
            return self._slice(segment, position, size, next_offset)
        except (OSError, CorruptBatch) as error:
            raise StorageFailed(f"{self.segments.folder}: {error}") from error

    def _slice(self, segment: Segment, position: int, size: int, next_offset: int) -> Slice:
        self._remember(next_offset, segment, position + size)
        file = segment.file or self.segments.open(segment)
        segment.is_warm = True
        if size >= SENDFILE_BYTES_MIN:
            return Slice([FileSlice(file, position, size)], size, next_offset)
        return Slice([_read_exactly(file, position, size)], size, next_offset)

    def _read_few(self, segment: Segment, position: int, max_bytes: int) -> Slice | None:
        """A few small batches: finding their end and reading them is one step. None if that does not do."""
        if max_bytes > PROBE_BYTES:
            return None
        file = segment.file or self.segments.open(segment)
        data = file.pread(max_bytes, position)
        size, next_offset = whole_beginning(data)
        if not size or len(data) != max_bytes:
            return None
        segment.is_warm = True
        self._remember(next_offset, segment, position + size)
        return Slice([data[:size]], size, next_offset)

    def _check_residency(self, offset: int, max_bytes: int, end_offset: int) -> None:
        """NotResident unless everything that the read will touch can be reached without the disk."""
        hint = self._hints.get(offset)
        if hint is not None and hint[1] >= hint[0].size_bytes:
            hint = None
        segment = hint[0] if hint is not None else self.segments.segments[self.segments.segment_of(offset)]
        file, index = segment.file, segment.offsets
        if file is not None and index is not None:
            start = hint[1] if hint is not None else index.position_before(offset)
            limit = segment.size_bytes
            if end_offset < segment.next_offset:
                limit = index.position_before(end_offset)
                if not file.is_resident(limit, PROBE_BYTES):
                    limit = -1
            target = min(start + max_bytes, limit)
            if target > start + SENDFILE_BYTES_MIN:
                # The sender of the slice looks after its bytes; here only its ends are read.
                is_resident = file.is_resident(start, PROBE_BYTES) and file.is_resident(
                    index.position_at_most(target), PROBE_BYTES
                )
            else:
                is_resident = limit >= 0 and file.is_resident(start, max(target - start, PROBE_BYTES))
            if is_resident:
                return
        raise NotResident(SegmentsRead(self, partial(self._plan_touch, offset, max_bytes, end_offset)))

    def _plan_touch(self, offset: int, max_bytes: int, end_offset: int) -> Plan[None]:
        segment = self.segments.segments[self.segments.segment_of(offset)]
        max_bytes = min(max_bytes, TOUCHED_BYTES_MAX)
        work = partial(reading.touch, offset=offset, max_bytes=max_bytes, end_offset=end_offset)
        return Plan(offset, min(end_offset, segment.next_offset), work)

    def read_batches(
        self, offset: int, max_bytes: int, end_offset: int
    ) -> BlockingRead[Sequence[memoryview]]:
        def plan() -> Plan[Sequence[memoryview]]:
            if offset < self.log_start_offset or offset > self.written_offset:
                raise self._out_of_range(offset)
            end = min(end_offset, self.written_offset)
            work = partial(reading.some_batches, offset=offset, max_bytes=max_bytes, end_offset=end)
            return Plan(offset, end, work)

        return SegmentsRead(self, plan)

    def find_timestamp(self, timestamp_ms: int, end_offset: int) -> BlockingRead[TimestampedOffset | None]:
        def plan() -> Plan[TimestampedOffset | None]:
            start, end = self.log_start_offset, min(end_offset, self.written_offset)
            return Plan(start, end, lambda view: reading.first_at_or_after(view, timestamp_ms, start, end))

        return SegmentsRead(self, plan)

    def find_max_timestamp(self, end_offset: int) -> BlockingRead[TimestampedOffset | None]:
        def plan() -> Plan[TimestampedOffset | None]:
            start, end = self.log_start_offset, min(end_offset, self.written_offset)
            return Plan(start, end, lambda view: reading.latest_record(view, start, end))

        return SegmentsRead(self, plan)

    def batches(self, offset: int, end_offset: int) -> Iterator[memoryview]:
        if offset < self.log_start_offset or offset > self.written_offset:
            raise self._out_of_range(offset)
        return reading.walk_batches(self.segments, offset, min(end_offset, self.written_offset))

    def offset_for_timestamp(self, timestamp_ms: int, end_offset: int) -> TimestampedOffset | None:
        end_offset = min(end_offset, self.written_offset)
        try:
            return reading.first_at_or_after(self.segments, timestamp_ms, self.log_start_offset, end_offset)
        except (OSError, CorruptBatch) as error:
            raise StorageFailed(f"{self.segments.folder}: {error}") from error

    def offset_of_max_timestamp(self, end_offset: int) -> TimestampedOffset | None:
        end_offset = min(end_offset, self.written_offset)
        try:
            return reading.latest_record(self.segments, self.log_start_offset, end_offset)
        except (OSError, CorruptBatch) as error:
            raise StorageFailed(f"{self.segments.folder}: {error}") from error

    def epoch_end(self, leader_epoch: int) -> tuple[int, int]:
        return self.epochs.end_of(leader_epoch, self.end_offset)

    def epoch_of(self, offset: int) -> int:
        return self.epochs.epoch_of(offset)

    def producers(self) -> Iterable[ProducerView]:
        for producer in self.producer_state():
            yield ProducerView(
                producer.producer_id,
                producer.epoch,
                producer.last_sequence,
                producer.last_timestamp,
                producer.coordinator_epoch,
                producer.transaction_start_offset,
            )

    @property
    def last_stable_offset(self) -> int:
        high_watermark = self.high_watermark
        unstable_offset = self.producer_state().first_unstable_offset(high_watermark)
        if unstable_offset is None:
            return high_watermark
        return min(max(unstable_offset, self.log_start_offset), high_watermark)

    def aborted_transactions(
        self, first_offset: int, end_offset: int, *, may_block: bool = True
    ) -> list[tuple[int, int]]:
        marked = self.segments.with_aborted
        if marked == []:
            return []
        if not may_block and (marked is None or any(segment.aborted is None for segment in marked)):
            raise NotResident(SegmentsRead(self, partial(self._plan_touch_aborted, first_offset, end_offset)))
        found = self.aborted_in(first_offset, end_offset)
        return [(transaction.producer_id, transaction.first_offset) for transaction in found]

    def _plan_touch_aborted(self, first_offset: int, end_offset: int) -> Plan[None]:
        work = partial(touch_aborted, first_offset=first_offset, end_offset=end_offset)
        return Plan(first_offset, self.written_offset, work)

    def aborted_in(self, first_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The same, with all that is known of them."""
        try:
            return aborted_in(self.segments, first_offset, end_offset)
        except (OSError, CorruptBatch) as error:
            raise StorageFailed(f"{self.segments.folder}: {error}") from error

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        return self.producer_state().has_open_transaction(producer_id, producer_epoch)

    def guard_transaction(
        self, producer_id: int, producer_epoch: int, base_sequence: int, now_ms: int
    ) -> Guard:
        return self.producer_state().guard(producer_id, producer_epoch, base_sequence, now_ms)

    def check_guard(self, guard: Guard, base_sequence: int, *, needs_start: bool) -> None:
        self.producer_state().check_guard(guard, base_sequence, needs_start=needs_start)

    def check_marker(self, producer_id: int, producer_epoch: int, transaction_version: int) -> None:
        self.producer_state().check_marker(producer_id, producer_epoch, transaction_version)

    def delete_records_before(
        self, offset: int, done: Callable[[ApiError | None], None] = lambda error: None
    ) -> None:
        if offset > self.high_watermark:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name}: {offset} is above the high watermark {self.high_watermark}",
            )
        if offset <= self.log_start_offset and self.start_is_told_by_files:
            done(None)
        else:
            self._home.advance_log_start(self, offset, done)

    def truncate_to(self, offset: int) -> None:
        if self.failure is not None:
            raise StorageFailed(self.failure)
        try:
            surgery.truncate_to(self, offset)
        except (OSError, CorruptBatch) as error:
            # What is in memory may no longer be what is in the files; the next start sorts it out.
            self.fail(f"{self.segments.folder} could not be cut: {error}", can_heal=False)
            raise StorageFailed(str(self.failure)) from error

    def closed_segments(self) -> list[Segment]:
        """The segments that nothing is appended to any more, oldest first."""
        return self.segments.segments[:-1]

    def segment_file(self, segment: Segment) -> File:
        """The file of one of our segments; it stays open for as long as it is held."""
        return self.segments.open(segment)

    def _place_in(self, segment: Segment, offset: int) -> int:
        hint = self._hints.get(offset)
        if hint is not None and hint[0] is segment:
            return hint[1]
        position = self.segments.position_in(segment, offset)
        self._remember(offset, segment, position)
        return position

    def _remember(self, offset: int, segment: Segment, position: int) -> None:
        hints = self._hints
        if len(hints) >= _READ_HINTS_MAX and offset not in hints:
            del hints[next(iter(hints))]
        hints[offset] = (segment, position)

    def _out_of_range(self, offset: int) -> ApiError:
        return ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{self.name} holds offsets {self.log_start_offset} to {self.written_offset}, not {offset}",
        )


def _read_exactly(file: File, position: int, size: int) -> bytes:
    data = file.pread(size, position)
    if len(data) != size:
        raise CorruptBatch(f"a segment file is cut short at position {position + len(data)}")
    return data
