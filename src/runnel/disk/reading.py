"""Searches in a log: by offset and by timestamp."""

from collections.abc import Iterator, Sequence

from runnel.batch.errors import BatchInflatesTooFar, CorruptBatch
from runnel.batch.header import BatchHeader, read_header
from runnel.batch.records import unpack_records, walk_records
from runnel.disk.segment import Segment
from runnel.disk.segments import Segments
from runnel.disk.walk import CHUNK_BYTES, PROBE_BYTES, check_sums, walk_batch_bounds, walk_headers_of_file
from runnel.model.limits import LOOKUP_BATCH_BYTES_MAX, LOOKUP_RECORDS_MAX
from runnel.ports.disk import Slice, TimestampedOffset
from runnel.ports.files import File


def whole_batches(
    segments: Segments, segment: Segment, position: int, limit: int, max_bytes: int, at_least_one: bool
) -> tuple[int, int]:
    """(bytes, next offset) of the complete batches from `position` that fit into `max_bytes`."""
    size = next_offset = 0
    target = position + max_bytes
    entry = segments.offsets_of(segment).entry_at_most(target)
    start = segments.checked(segment, entry) if entry[1] > position else position
    if start > position:
        # Everything before the indexed batch fits; whether that one does is seen below.
        size = start - position
    for batch_position, batch_size, base_offset, after in walk_batch_bounds(
        segment.file or segments.open(segment), start, limit
    ):
        if batch_position + batch_size > target and (size or not at_least_one):
            next_offset = base_offset
            break
        size = batch_position + batch_size - position
        next_offset = after
        if size >= max_bytes:
            break
    return size, next_offset


def walk_batches(segments: Segments, offset: int, end_offset: int) -> Iterator[memoryview]:
    """The batches from the one with `offset` to the last one that begins below `end_offset`, decrypted."""
    while offset < end_offset:
        segment, position = segments.locate(offset)
        chunk, chunk_start = memoryview(b""), position
        for batch_position, size, base_offset, next_offset in walk_batch_bounds(
            segments.open(segment), position, segment.size_bytes
        ):
            local = batch_position - chunk_start
            if local + size > len(chunk):
                chunk_start, local = batch_position, 0
                length = min(max(CHUNK_BYTES, size), segment.size_bytes - batch_position)
                chunk = memoryview(segments.open(segment).pread(length, batch_position))
            if base_offset >= end_offset:
                return
            stored = chunk[local : local + size]
            yield stored if segment.cipher is None else memoryview(segment.cipher.decrypt(stored))
            offset = next_offset
        offset = max(offset, segment.next_offset)


def some_batches(segments: Segments, offset: int, max_bytes: int, end_offset: int) -> Sequence[memoryview]:
    """The batches from the one with `offset`, up to `max_bytes`."""
    found: list[memoryview] = []
    size_bytes = 0
    for batch in walk_batches(segments, offset, end_offset):
        found.append(batch)
        size_bytes += len(batch)
        if size_bytes >= max_bytes:
            break
    return found


def decrypted(
    segments: Segments, offset: int, max_bytes: int, end_offset: int, *, at_least_one: bool
) -> Slice:
    """The batches that a reader of these offsets is about to request, in memory; at most as it requests."""
    segment, position = segments.locate(offset)
    limit, next_offset = segment.size_bytes, segment.next_offset
    if end_offset < next_offset:
        limit, next_offset = segments.position_in(segment, end_offset), end_offset
    size_bytes = limit - position
    if size_bytes > max_bytes:
        size_bytes, next_offset = whole_batches(segments, segment, position, limit, max_bytes, at_least_one)
    if size_bytes <= 0:
        return Slice([], 0)
    stored = read_exactly(segments.open(segment), position, size_bytes)
    if segment.cipher is None:
        # From before the log was encrypted, or after. What comes from the disk is verified.
        check_sums(stored, position)
        return Slice([stored], size_bytes, next_offset)
    data = segment.cipher.decrypt_large(stored)
    return Slice([data], len(data), next_offset)


def clear_bytes(segment: Segment, stored: bytes) -> bytes:
    """Whole batches of a segment as they are sent. CorruptBatch if one was changed."""
    return stored if segment.cipher is None else segment.cipher.decrypt_all(stored)


def read_exactly(file: File, position: int, size: int) -> bytes:
    """This many bytes of a file; CorruptBatch if it ends before."""
    data = file.pread(size, position)
    if len(data) != size:
        raise CorruptBatch(f"a segment file ends short, at position {position + len(data)}")
    return data


def touch(segments: Segments, offset: int, max_bytes: int, end_offset: int) -> None:
    """Load the indexes and read the bytes that a reader of these offsets is about to request."""
    segment, position = segments.locate(offset)
    limit = segment.size_bytes
    if end_offset < segment.next_offset:
        limit = segments.position_in(segment, end_offset)
    segments.offsets_of(segment)
    # At least an index interval: that much is searched for the batch where the answer ends.
    size_bytes = min(max(max_bytes, PROBE_BYTES), limit - position)
    # What comes from the disk is verified; the page cache is trusted.
    check_sums(segments.open(segment).pread(max(size_bytes, 0), position), position)


def first_at_or_after(
    segments: Segments, timestamp_ms: int, start_offset: int, end_offset: int
) -> TimestampedOffset | None:
    """The first record from `start_offset` on, below `end_offset`, that is not older than `timestamp_ms`.

    Where finding it takes too long, the first record of its batch.
    """
    lookup = _Lookup(segments, timestamp_ms, start_offset)
    for segment in segments.segments[segments.segment_of(start_offset) :]:
        if segment.base_offset >= end_offset:
            return None
        if segment.size_bytes == 0 or segments.max_timestamp_of(segment) < timestamp_ms:
            continue
        offset = max(segments.times_of(segment).offset_before(timestamp_ms), start_offset)
        for position, header in _headers_from(segments, segment, offset):
            if header.base_offset >= end_offset:
                return None
            if header.max_timestamp < timestamp_ms:
                continue
            found = lookup.first_record(segment, position, header)
            if found is not None:
                return found if found.offset < end_offset else None
    return None


def latest_record(segments: Segments, start_offset: int, end_offset: int) -> TimestampedOffset | None:
    """The first of the records with the largest timestamp from `start_offset` on, below `end_offset`."""
    latest = -1
    for segment in segments.segments[segments.segment_of(start_offset) :]:
        if segment.base_offset >= end_offset:
            break
        if segment.size_bytes == 0:
            continue
        if segment.base_offset >= start_offset and segment.next_offset <= end_offset:
            latest = max(latest, segments.max_timestamp_of(segment))
            continue
        for _, header in _headers_from(segments, segment, start_offset):
            if header.next_offset > end_offset:
                break
            latest = max(latest, header.max_timestamp)
    if latest < 0:
        return None
    return first_at_or_after(segments, latest, start_offset, end_offset)


def _headers_from(segments: Segments, segment: Segment, offset: int) -> Iterator[tuple[int, BatchHeader]]:
    position = segments.position_in(segment, offset)
    return walk_headers_of_file(segments.open(segment), position, segment.size_bytes, 64 * 1024)


class _Lookup:
    """A search for a record by timestamp, with a budget for decompression."""

    __slots__ = ("_records_left", "_segments", "_start_offset", "_timestamp_ms")

    def __init__(self, segments: Segments, timestamp_ms: int, start_offset: int) -> None:
        self._segments = segments
        self._timestamp_ms, self._start_offset = timestamp_ms, start_offset
        self._records_left = LOOKUP_RECORDS_MAX

    def first_record(self, segment: Segment, position: int, header: BatchHeader) -> TimestampedOffset | None:
        """The first matching record of a batch; the batch itself if decompressing it takes too long."""
        first_offset = max(header.base_offset, self._start_offset)
        whole = TimestampedOffset(first_offset, header.max_timestamp, header.leader_epoch)
        self._records_left -= header.record_count
        if self._records_left < 0:
            return whole
        batch = self._segments.open(segment).pread(header.size_bytes, position)
        if segment.cipher is not None:
            batch = segment.cipher.decrypt(batch)
            header = read_header(batch)
        try:
            raw = unpack_records(batch, header, LOOKUP_BATCH_BYTES_MAX)
        except BatchInflatesTooFar:
            return whole
        append_time = header.max_timestamp if header.uses_log_append_time else None
        for _, _, timestamp_delta, offset_delta, _, _, _, _ in walk_records(raw, header.record_count):
            timestamp = header.base_timestamp + timestamp_delta if append_time is None else append_time
            offset = header.base_offset + offset_delta
            if timestamp >= self._timestamp_ms and offset >= self._start_offset:
                return TimestampedOffset(offset, timestamp, header.leader_epoch)
        return None
