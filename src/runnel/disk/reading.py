"""Finding things in a log: whole batches, batch by batch, by time."""

from collections.abc import Iterator, Sequence

from runnel.batch.header import BatchHeader
from runnel.batch.records import iterate_records
from runnel.disk.segment import Segment
from runnel.disk.segments import Segments
from runnel.disk.walk import CHUNK_BYTES, PROBE_BYTES, walk_batch_bounds, walk_headers_of_file
from runnel.ports.disk import TimestampedOffset


def whole_batches(
    segments: Segments, segment: Segment, position: int, limit: int, max_bytes: int, at_least_one: bool
) -> tuple[int, int]:
    """(bytes, offset after them): the whole batches from `position` that fit into `max_bytes`."""
    size = next_offset = 0
    target = position + max_bytes
    start = max(position, segments.offsets_of(segment).position_at_most(target))
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
    """Batch by batch, from the one that holds `offset` to the last one that begins below `end_offset`."""
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
            yield chunk[local : local + size]
            offset = next_offset
        offset = max(offset, segment.next_offset)


def some_batches(segments: Segments, offset: int, max_bytes: int, end_offset: int) -> Sequence[memoryview]:
    """Batches from the one that holds `offset` on, until they have `max_bytes`."""
    found: list[memoryview] = []
    size_bytes = 0
    for batch in walk_batches(segments, offset, end_offset):
        found.append(batch)
        size_bytes += len(batch)
        if size_bytes >= max_bytes:
            break
    return found


def touch(segments: Segments, offset: int, max_bytes: int, end_offset: int) -> None:
    """Load the indexes and read the bytes that a reader of these offsets is about to request."""
    segment, position = segments.locate(offset)
    limit = segment.size_bytes
    if end_offset < segment.next_offset:
        limit = segments.position_in(segment, end_offset)
    segments.offsets_of(segment)
    # At least an index interval: that much is searched for the batch where the answer ends.
    size_bytes = min(max(max_bytes, PROBE_BYTES), limit - position)
    segments.open(segment).pread(max(size_bytes, 0), position)


def first_at_or_after(
    segments: Segments, timestamp_ms: int, start_offset: int, end_offset: int
) -> TimestampedOffset | None:
    """The first record from `start_offset` on, below `end_offset`, that is not older than `timestamp_ms`."""
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
            found = _first_record(segments, segment, position, header, timestamp_ms, start_offset)
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


def _first_record(
    segments: Segments,
    segment: Segment,
    position: int,
    header: BatchHeader,
    timestamp_ms: int,
    start_offset: int,
) -> TimestampedOffset | None:
    batch = segments.open(segment).pread(header.size_bytes, position)
    for record in iterate_records(batch):
        if record.timestamp >= timestamp_ms and record.offset >= start_offset:
            return TimestampedOffset(record.offset, record.timestamp, header.leader_epoch)
    return None
