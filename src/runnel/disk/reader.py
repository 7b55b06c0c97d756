"""The read path of a log: batches by offset, records by timestamp, aborted transactions.

Reads of encrypted segments are decrypted into memory: large ones by a thread, whose result is kept for the
reader to fetch (`Decryption`).

Reads do not wait for the disk unless `may_block`: data that is neither recent nor in the page cache, or has
no index in memory, is loaded by a thread (`NotResident`), and so are lookups that may have to scan a
segment.
"""

from collections.abc import Callable, Sequence
from functools import partial

from runnel.batch.errors import CorruptBatch
from runnel.disk import reading
from runnel.disk.aborted_on_disk import aborted_in, touch_aborted
from runnel.disk.blocking_read import Plan, SegmentsRead
from runnel.disk.damage import read_failure
from runnel.disk.decryption import DecryptedReads, Decryption
from runnel.disk.segment import Segment
from runnel.disk.segments import IndexDiscarded, Segments
from runnel.disk.verification import verify
from runnel.disk.walk import PROBE_BYTES, whole_beginning
from runnel.log.idempotency import FoundKeys, stored_keys
from runnel.log.index import OffsetIndex
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import TopicPartition
from runnel.model.limits import SENDFILE_BYTES_MIN
from runnel.ports.disk import BlockingRead, FileSlice, NotResident, Slice, TimestampedOffset, Verified
from runnel.ports.files import File

TOUCHED_BYTES_MAX = 1024 * 1024
"""Bytes of a cold log that a thread loads at once."""
DECRYPTED_BYTES_MAX = 1024 * 1024
"""Bytes of an encrypted log that one read takes, unless the first batch is larger."""
_POSITIONS_MAX = 16
"""Sequential readers of one log whose positions are cached; more than that search the index."""


class Reader:
    """Reads one log, and caches where its sequential readers continue."""

    __slots__ = ("_decrypted", "_name", "_next_young_offset", "_positions", "_segments", "_young_offset")

    def __init__(self, name: TopicPartition, segments: Segments) -> None:
        self._name, self._segments = name, segments
        self._positions: dict[int, tuple[Segment, int]] = {}
        """Offset → segment and position, where readers are expected to continue."""
        self._decrypted = DecryptedReads()
        self._young_offset = self._next_young_offset = segments.written_offset
        """Batches from here on were written moments ago: they are in the page cache."""

    def time_passed(self) -> None:
        """Batches from before the last call are no longer recent: they may have left the page cache."""
        self._young_offset, self._next_young_offset = self._next_young_offset, self._segments.written_offset
        self._decrypted.time_passed()

    def segments_changed(self) -> None:
        """Invalidate the cached positions."""
        self._positions.clear()
        self._decrypted.clear()
        written_offset = self._segments.written_offset
        self._young_offset = min(self._young_offset, written_offset)
        self._next_young_offset = min(self._next_young_offset, written_offset)

    def read(
        self, offset: int, max_bytes: int, end_offset: int, *, at_least_one: bool, may_block: bool = True
    ) -> Slice:
        """Whole batches from the one that holds `offset`, below `end_offset`; see `PartitionLog.read`."""
        segments = self._segments
        written_offset = segments.segments[-1].next_offset
        if offset < segments.log_start_offset or offset > written_offset:
            raise self._out_of_range(offset)
        end_offset = written_offset if end_offset > written_offset else end_offset
        if offset >= end_offset:
            return Slice([], 0)
        if segments.has_encrypted:
            decrypted = self._decrypted.take(offset, max_bytes, end_offset, at_least_one)
            if decrypted is not None:
                return decrypted
        try:
            found = self._read_next(offset, max_bytes, end_offset) if max_bytes <= PROBE_BYTES else None
            if found is not None:
                return found
            if offset < self._young_offset and not may_block:
                self._check_residency(offset, max_bytes, end_offset, at_least_one)
            try:
                return self._find_and_read(offset, max_bytes, end_offset, at_least_one, may_block)
            except IndexDiscarded:
                if not may_block:
                    raise self._not_resident(offset, max_bytes, end_offset, at_least_one) from None
                return self._find_and_read(offset, max_bytes, end_offset, at_least_one, may_block)
        except (OSError, CorruptBatch) as error:
            raise read_failure(segments.folder, error) from error

    def _find_and_read(
        self, offset: int, max_bytes: int, end_offset: int, at_least_one: bool, may_block: bool
    ) -> Slice:
        segments = self._segments
        segment, position = self._positions.get(offset) or segments.locate(offset)
        if position >= segment.size_bytes:
            segment, position = segments.locate(offset)
        if segment.is_encrypted:
            max_bytes = min(max_bytes, DECRYPTED_BYTES_MAX)
        limit, next_offset = segment.size_bytes, segment.next_offset
        if end_offset < next_offset:
            limit, next_offset = self._position_in(segment, end_offset), end_offset
        size = limit - position
        if size > max_bytes:
            few = self._read_few(segment, position, max_bytes)
            if few is not None:
                return few
            size, next_offset = reading.whole_batches(
                segments, segment, position, limit, max_bytes, at_least_one
            )
        if size <= 0:
            return Slice([], 0)
        if segment.is_encrypted and size > SENDFILE_BYTES_MIN and not may_block:
            raise self._not_decrypted(offset, max_bytes, end_offset, at_least_one, size)
        return self._slice(segment, position, size, next_offset)

    def _slice(self, segment: Segment, position: int, size: int, next_offset: int) -> Slice:
        self._cache(next_offset, segment, position + size)
        file = segment.file or self._segments.open(segment)
        segment.is_warm = True
        if segment.is_encrypted:
            return _clear_slice(segment, reading.read_exactly(file, position, size), next_offset)
        if size >= SENDFILE_BYTES_MIN:
            return Slice([FileSlice(file, position, size)], size, next_offset)
        return Slice([reading.read_exactly(file, position, size)], size, next_offset)

    def _read_next(self, offset: int, max_bytes: int, end_offset: int) -> Slice | None:
        """The next small batches of a sequential reader; None if they must be searched or loaded."""
        cached = self._positions.get(offset)
        if cached is None:
            return None
        segment, position = cached
        file = segment.file
        if file is None or end_offset < segment.next_offset or segment.size_bytes - position <= max_bytes:
            return None
        data = self._segments.read_ahead.read(segment, file, position, max_bytes)
        if data is None:
            return None
        size, next_offset = whole_beginning(data)
        if not size:
            return None
        segment.is_warm = True
        self._cache(next_offset, segment, position + size)
        if segment.is_encrypted:
            return _clear_slice(segment, data[:size], next_offset)
        return Slice([data[:size]], size, next_offset)

    def _read_few(self, segment: Segment, position: int, max_bytes: int) -> Slice | None:
        """Read a few small batches in one step; None if that is not sufficient."""
        if max_bytes > PROBE_BYTES:
            return None
        file = segment.file or self._segments.open(segment)
        data = file.pread(max_bytes, position)
        size, next_offset = whole_beginning(data)
        if not size or len(data) != max_bytes:
            return None
        segment.is_warm = True
        self._cache(next_offset, segment, position + size)
        if segment.is_encrypted:
            return _clear_slice(segment, data[:size], next_offset)
        return Slice([data[:size]], size, next_offset)

    def _check_residency(self, offset: int, max_bytes: int, end_offset: int, at_least_one: bool) -> None:
        """NotResident if the read would wait for the disk."""
        segments = self._segments
        cached = self._positions.get(offset)
        if cached is not None and cached[1] < cached[0].size_bytes:
            segment, position = cached
        else:
            segment, position = segments.segments[segments.segment_of(offset)], -1
        file, index = segment.file, segment.offsets
        if file is not None and index is not None:
            position = position if position >= 0 else index.position_before(offset)
            end = segment.size_bytes
            if end_offset < segment.next_offset:
                end = index.position_before(end_offset) + PROBE_BYTES
            if _is_resident(file, index, position, min(position + max_bytes, end)):
                return
        raise self._not_resident(offset, max_bytes, end_offset, at_least_one)

    def _not_resident(self, offset: int, max_bytes: int, end_offset: int, at_least_one: bool) -> NotResident:
        segments = self._segments
        if not segments.has_encrypted:
            plan = partial(self._plan_touch, offset, max_bytes, end_offset)
            return NotResident(SegmentsRead(segments, plan))
        max_bytes = min(max_bytes, DECRYPTED_BYTES_MAX)
        kept_bytes = max(min(max_bytes, segments.size_bytes), int(at_least_one))
        return self._not_decrypted(offset, max_bytes, end_offset, at_least_one, kept_bytes)

    def _not_decrypted(
        self, offset: int, max_bytes: int, end_offset: int, at_least_one: bool, kept_bytes: int
    ) -> NotResident:
        load = Decryption(self._segments, self._decrypted, offset, max_bytes, end_offset, at_least_one)
        return NotResident(load, kept_bytes)

    def _plan_touch(self, offset: int, max_bytes: int, end_offset: int) -> Plan[None]:
        segment = self._segments.segments[self._segments.segment_of(offset)]
        max_bytes = min(max_bytes, TOUCHED_BYTES_MAX)
        work = partial(reading.touch, offset=offset, max_bytes=max_bytes, end_offset=end_offset)
        return Plan(offset, min(end_offset, segment.next_offset), work)

    def read_batches(
        self, offset: int, max_bytes: int, end_offset: int
    ) -> BlockingRead[Sequence[memoryview]]:
        def plan() -> Plan[Sequence[memoryview]]:
            self._check_range(offset)
            end = min(end_offset, self._segments.written_offset)
            work = partial(reading.some_batches, offset=offset, max_bytes=max_bytes, end_offset=end)
            return Plan(offset, end, work)

        return SegmentsRead(self._segments, plan)

    def find_keys(self, offset: int, max_bytes: int, end_offset: int) -> BlockingRead[FoundKeys]:
        def plan() -> Plan[FoundKeys]:
            self._check_range(offset)
            end = min(end_offset, self._segments.written_offset)
            return Plan(
                offset, end, lambda view: stored_keys(reading.some_batches(view, offset, max_bytes, end))
            )

        return SegmentsRead(self._segments, plan)

    def verify(
        self, offset: int, max_bytes: int, epochs: Callable[[], Sequence[tuple[int, int]]]
    ) -> BlockingRead[Verified]:
        def plan() -> Plan[Verified]:
            start = max(offset, self._segments.log_start_offset)
            end = self._segments.written_offset
            work = partial(verify, offset=start, max_bytes=max_bytes, end_offset=end, epochs=epochs())
            return Plan(start, end, work)

        return SegmentsRead(self._segments, plan)

    def find_timestamp(self, timestamp_ms: int, end_offset: int) -> BlockingRead[TimestampedOffset | None]:
        def plan() -> Plan[TimestampedOffset | None]:
            start, end = self._bounds(end_offset)
            return Plan(start, end, lambda view: reading.first_at_or_after(view, timestamp_ms, start, end))

        return SegmentsRead(self._segments, plan)

    def find_max_timestamp(self, end_offset: int) -> BlockingRead[TimestampedOffset | None]:
        def plan() -> Plan[TimestampedOffset | None]:
            start, end = self._bounds(end_offset)
            return Plan(start, end, lambda view: reading.latest_record(view, start, end))

        return SegmentsRead(self._segments, plan)

    def aborted_transactions(
        self, first_offset: int, end_offset: int, *, may_block: bool = True
    ) -> list[tuple[int, int]]:
        marked = self._segments.with_aborted
        if marked == []:
            return []
        if not may_block and (marked is None or any(segment.aborted is None for segment in marked)):
            plan = partial(self._plan_touch_aborted, first_offset, end_offset)
            raise NotResident(SegmentsRead(self._segments, plan))
        try:
            found = aborted_in(self._segments, first_offset, end_offset)
        except (OSError, CorruptBatch) as error:
            raise read_failure(self._segments.folder, error) from error
        return [(transaction.producer_id, transaction.first_offset) for transaction in found]

    def _plan_touch_aborted(self, first_offset: int, end_offset: int) -> Plan[None]:
        work = partial(touch_aborted, first_offset=first_offset, end_offset=end_offset)
        return Plan(first_offset, self._segments.written_offset, work)

    def _bounds(self, end_offset: int) -> tuple[int, int]:
        return self._segments.log_start_offset, min(end_offset, self._segments.written_offset)

    def _position_in(self, segment: Segment, offset: int) -> int:
        cached = self._positions.get(offset)
        if cached is not None and cached[0] is segment:
            return cached[1]
        position = self._segments.position_in(segment, offset)
        self._cache(offset, segment, position)
        return position

    def _cache(self, offset: int, segment: Segment, position: int) -> None:
        positions = self._positions
        if len(positions) >= _POSITIONS_MAX and offset not in positions:
            del positions[next(iter(positions))]
        positions[offset] = (segment, position)

    def _check_range(self, offset: int) -> None:
        if not self._segments.log_start_offset <= offset <= self._segments.written_offset:
            raise self._out_of_range(offset)

    def _out_of_range(self, offset: int) -> ApiError:
        start_offset, end_offset = self._segments.log_start_offset, self._segments.written_offset
        return ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{self._name} holds offsets {start_offset} to {end_offset}, not {offset}",
        )


def _is_resident(file: File, index: OffsetIndex, position: int, end: int) -> bool:
    if end - position <= SENDFILE_BYTES_MIN:
        return file.is_resident(position, max(end - position, PROBE_BYTES))
    # The sender of a file slice probes its bytes; here only its ends are read.
    last = index.position_at_most(end)
    return file.is_resident(position, PROBE_BYTES) and file.is_resident(last, PROBE_BYTES)


def _clear_slice(segment: Segment, stored: bytes, next_offset: int) -> Slice:
    data = reading.clear_bytes(segment, stored)
    return Slice([data], len(data), next_offset)
