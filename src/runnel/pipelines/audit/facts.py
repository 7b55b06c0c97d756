"""What is noted of each batch: its header, whether its checksum holds, and how it ends a transaction.

A fact is a row, so that Spark can carry it from the task that read the batch to the one that judges its
partition. Bytes in which no batch can be found are a fact as well.
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
GONE = "gone"
"""Removed by retention while the audit was reading."""
TORN = "torn"
"""The last batch of a log ends in the middle, as a crash leaves it."""
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
    """What a batch means that is cut off at the end of what was read."""

    GOES_ON = "the rest of it can be asked for"
    CLOSED = "the segment is closed: it should be whole"
    ENDS = "the log ends here: a crash may have cut it off"


@dataclass(slots=True)
class BatchFact:
    """One batch as stored in a log; columns are COLUMNS, in order."""

    topic: str
    partition: int
    range_start: int
    """With `position`, the order of facts: the segment or stretch that was read, and where in it."""
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
class Stretch:
    """Bytes of one partition that hold batches, one behind the other, and where they were read."""

    topic: str
    partition: int
    range_start: int
    position: int
    records: memoryview
    tail: "Tail"


def facts_of(stretch: Stretch, expected_offset: int) -> Iterator[BatchFact]:
    """Each batch in these bytes; where there is none, the next one behind is looked for."""
    records, position, end = stretch.records, 0, len(stretch.records)
    while position < end:
        header = read_header_or_none(records, position)
        if header is not None and position + header.size_bytes <= end:
            is_sound = crc_is_valid(records, position, header)
            if not is_sound and not _is_followed(records, position + header.size_bytes):
                header = None
        if header is not None and position + header.size_bytes <= end:
            yield _fact(stretch, position, header, is_sound)
            expected_offset = header.next_offset
            position += header.size_bytes
            continue
        found = find_batch(records, position + 1, expected_offset)
        is_cut = header is not None or end - position < HEADER_BYTES
        if found is None and is_cut and stretch.tail is Tail.GOES_ON:
            # Whoever asks from here on gets it whole.
            return
        next_position, next_offset = found or (end, expected_offset)
        fact = _unreadable(stretch, position, next_position, expected_offset, next_offset)
        if found is None and is_cut and stretch.tail is Tail.ENDS:
            fact.problem = TORN
        yield fact
        position, expected_offset = next_position, next_offset


def _is_followed(records: memoryview, position: int) -> bool:
    """Is here the end, or another batch? If not, the length that led here is damaged as well."""
    return len(records) - position < HEADER_BYTES or read_header_or_none(records, position) is not None


def find_batch(records: Buffer, position: int, offset_min: int) -> tuple[int, int] | None:
    """Where the next sound batch of at least this offset begins, and that offset."""
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
    """The header at this place, if there can be one."""
    try:
        return read_header(records, position)
    except CorruptBatch:
        return None


def _fact(stretch: Stretch, position: int, header: BatchHeader, is_sound: bool) -> BatchFact:
    return BatchFact(
        stretch.topic,
        stretch.partition,
        stretch.range_start,
        stretch.position + position,
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
        _marker(stretch.records[position : position + header.size_bytes])
        if header.is_control and is_sound
        else None,
        None if is_sound else CHECKSUM,
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
    stretch: Stretch, position: int, next_position: int, offset: int, next_offset: int
) -> BatchFact:
    return BatchFact(
        stretch.topic,
        stretch.partition,
        stretch.range_start,
        stretch.position + position,
        offset,
        next_offset - 1,
        next_position - position,
        problem=UNREADABLE,
    )
