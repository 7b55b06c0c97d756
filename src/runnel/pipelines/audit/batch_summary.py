"""Summaries of batches: the header, whether the checksum is valid, and the transaction marker, if any.

A summary is a row, so that Spark can shuffle it from the task that reads the batch to the one that checks the
partition. Bytes that contain no valid batch have a summary as well.
"""

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from enum import Enum
from struct import Struct

from runnel.batch.control import read_end_marker
from runnel.batch.errors import CorruptBatch
from runnel.batch.header import (
    HEADER_BYTES,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    Buffer,
    crc_is_valid,
    read_header,
)

CHECKSUM = "checksum"
UNREADABLE = "unreadable"
REMOVED = "removed"
"""Removed by retention while the audit was reading."""
TORN = "torn"
"""The last batch of a log is incomplete, as after a crash."""
COMMIT, ABORT, OTHER = "commit", "abort", "other"

COLUMNS = (
    "topic string, partition int, range_start bigint, position bigint, "
    "base_offset bigint, last_offset bigint, size_bytes bigint, record_count int, attributes int, "
    "base_timestamp bigint, max_timestamp bigint, "
    "producer_id bigint, producer_epoch int, base_sequence int, marker string, problem string"
)
_WINDOW_BYTES = 1024 * 1024
_BASE_OFFSET = Struct(">q")


class Tail(Enum):
    """How to treat an incomplete batch at the end of a chunk."""

    CONTINUES = "the rest can be fetched"
    CLOSED = "the segment is closed: it should be complete"
    ENDS = "the log ends here: a crash may have left a torn batch"


@dataclass(slots=True)
class BatchSummary:
    """One batch as stored in a log; columns are COLUMNS, in order."""

    topic: str
    partition: int
    range_start: int
    """With `position`, the order of summaries: the segment or range that was read, and the position in it."""
    position: int
    base_offset: int
    last_offset: int
    size_bytes: int
    record_count: int = 0
    attributes: int = 0
    base_timestamp: int = -1
    max_timestamp: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    marker: str | None = None
    problem: str | None = None

    def row(self) -> tuple[object, ...]:
        """The values in order of COLUMNS."""
        return astuple(self)


@dataclass(slots=True)
class LogChunk:
    """Consecutive bytes of a partition's log, and their position."""

    topic: str
    partition: int
    range_start: int
    position: int
    records: memoryview
    tail: "Tail"


def summarize(chunk: LogChunk, expected_offset: int) -> Iterator[BatchSummary]:
    """Each batch in these bytes; after damage, continue at the next valid batch."""
    records, position, end = chunk.records, 0, len(chunk.records)
    while position < end:
        header = read_header_or_none(records, position)
        if header is not None and position + header.size_bytes <= end:
            is_valid = crc_is_valid(records, position, header)
            if not is_valid and not _is_followed(records, position + header.size_bytes):
                header = None
        if header is not None and position + header.size_bytes <= end:
            yield _summary(chunk, position, header, is_valid)
            expected_offset = header.next_offset
            position += header.size_bytes
            continue
        found = find_batch(records, position + 1, expected_offset)
        is_cut = header is not None or end - position < HEADER_BYTES
        if found is None and is_cut and chunk.tail is Tail.CONTINUES:
            # The next fetch returns it completely.
            return
        next_position, next_offset = found or (end, expected_offset)
        summary = _unreadable(chunk, position, next_position, expected_offset, next_offset)
        if found is None and is_cut and chunk.tail is Tail.ENDS:
            summary.problem = TORN
        yield summary
        position, expected_offset = next_position, next_offset


def _is_followed(records: memoryview, position: int) -> bool:
    """Does the log end here, or another batch follow? If not, the batch length is damaged as well."""
    return len(records) - position < HEADER_BYTES or read_header_or_none(records, position) is not None


def find_batch(records: Buffer, position: int, offset_min: int) -> tuple[int, int] | None:
    """Position and base offset of the next valid batch with at least this offset."""
    view = memoryview(records)
    while position + HEADER_BYTES <= len(view):
        window = bytes(view[position : position + _WINDOW_BYTES])
        at = window.find(MAGIC, MAGIC_POSITION)
        while at >= 0:
            start = position + at - MAGIC_POSITION
            if start + HEADER_BYTES <= len(view) and _BASE_OFFSET.unpack_from(view, start)[0] >= offset_min:
                header = read_header_or_none(view, start)
                if header is not None and crc_is_valid(view, start, header):
                    return start, header.base_offset
            at = window.find(MAGIC, at + 1)
        position += _WINDOW_BYTES - MAGIC_POSITION
    return None


def read_header_or_none(records: Buffer, position: int) -> BatchHeader | None:
    """The header at this position; None if there is none."""
    try:
        return read_header(records, position)
    except CorruptBatch:
        return None


def _summary(chunk: LogChunk, position: int, header: BatchHeader, is_valid: bool) -> BatchSummary:
    return BatchSummary(
        chunk.topic,
        chunk.partition,
        chunk.range_start,
        chunk.position + position,
        header.base_offset,
        header.last_offset,
        header.size_bytes,
        header.record_count,
        header.attributes,
        header.base_timestamp,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        _marker(chunk.records[position : position + header.size_bytes])
        if header.is_control and is_valid
        else None,
        None if is_valid else CHECKSUM,
    )


def _marker(batch: Buffer) -> str:
    try:
        end = read_end_marker(batch)
    except CorruptBatch:
        return OTHER
    if end is None:
        return OTHER
    return COMMIT if end.committed else ABORT


def _unreadable(
    chunk: LogChunk, position: int, next_position: int, offset: int, next_offset: int
) -> BatchSummary:
    return BatchSummary(
        chunk.topic,
        chunk.partition,
        chunk.range_start,
        chunk.position + position,
        offset,
        next_offset - 1,
        next_position - position,
        problem=UNREADABLE,
    )
