"""Finds the starts of records.

A record begins with its length, so the starts in a batch are found one after the other, which is slow in
Python. Here many batches are scanned in parallel with numpy, one record of each per step.

A long batch is split into several scans, at positions that look like the start of a record. A split was
right if every scan ends at the start of the next one; otherwise the batches are scanned one by one.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runnel.batch.errors import CorruptBatch
from runnel.batch.header import BatchHeader
from runnel.batch.varint import read_varint
from runnel.pipelines.source.varints import Bytes, Positions

PARALLEL_SCANS_MIN = 24
"""With fewer parallel scans, a vectorised step is slower than single steps."""
SPLIT_RECORDS = 256
"""Batches of at least twice as many records are split into scans of about this number."""
SPLIT_CANDIDATES_MAX = 16
"""Candidates to try for a split."""

_CANDIDATE = re.compile(rb"[\x80-\xff]?[\x00-\x7f]\x00", re.DOTALL)
"""A length of one or two bytes, then the attributes of a record, which are always zero."""


@dataclass(slots=True)
class Scan:
    """The scan of `count` records in [start, end); `first` is the index of the first record."""

    start: int
    end: int
    first: int
    count: int


def record_starts(data: bytes, sizes: Sequence[int], headers: Sequence[BatchHeader]) -> Positions:
    """The start of each record, at its length; the batches are contiguous in `data`."""
    scans: list[Scan] = []
    position = total = 0
    for size, header in zip(sizes, headers, strict=True):
        if not 0 < header.record_count <= size:
            raise CorruptBatch(f"{size} bytes cannot hold {header.record_count} records")
        whole = Scan(position, position + size, total, header.record_count)
        scans += _split(data, whole, header) if header.record_count >= 2 * SPLIT_RECORDS else (whole,)
        position += size
        total += header.record_count
    starts: Positions = np.empty(total, dtype=np.int64)
    if len(scans) < PARALLEL_SCANS_MIN or not _scan_in_parallel(data, scans, starts):
        position = total = 0
        for size, header in zip(sizes, headers, strict=True):
            _scan(data, Scan(position, position + size, total, header.record_count), starts)
            position += size
            total += header.record_count
    return starts


# Sequential.


def _scan(data: bytes, scan: Scan, starts: Positions) -> None:
    """Store the starts of one scan; CorruptBatch if it does not end at its end."""
    found: list[int] = []
    append = found.append
    position, end = scan.start, scan.end
    try:
        while position < end:
            append(position)
            low = data[position]
            if low < 0x80:
                position += 1 + (low >> 1)
            else:
                high = data[position + 1]
                if high < 0x80:
                    # Lengths are not negative, so zigzag decoding is a shift.
                    position += 2 + ((low & 0x7F | high << 7) >> 1)
                else:
                    length, position = read_varint(data, position)
                    position += max(length, 0)
    except IndexError:
        raise CorruptBatch("a record is truncated") from None
    if position != end or len(found) != scan.count:
        raise CorruptBatch(f"{scan.end - scan.start} bytes do not contain {scan.count} complete records")
    starts[scan.first : scan.first + scan.count] = found


# Parallel.


def _scan_in_parallel(data: bytes, scans: list[Scan], starts: Positions) -> bool:
    """Store the starts of all records; False if a scan does not end at its end."""
    # The longest first, so that the active scans are always a prefix.
    scans = sorted(scans, key=lambda scan: scan.count, reverse=True)
    counts = np.array([scan.count for scan in scans])
    ends = np.array([scan.end for scan in scans])
    slots = np.array([scan.first for scan in scans])
    positions = np.array([scan.start for scan in scans])
    view: Bytes = np.frombuffer(data, dtype=np.uint8)
    steps = int(counts[PARALLEL_SCANS_MIN - 1])
    active = np.searchsorted(-counts, -np.arange(steps), side="left").tolist()
    try:
        for step in range(steps):
            here = positions[: active[step]]
            starts[slots[: active[step]] + step] = here
            here += _SIZES.take(view.take(here) + (view.take(here + 1).astype(np.intp) << 8))
        # The remaining scans are too few for vectorised steps.
        for index in range(active[-1] if active else 0):
            left = Scan(
                int(positions[index]),
                scans[index].end,
                scans[index].first + steps,
                scans[index].count - steps,
            )
            if left.count > 0:
                _scan(data, left, starts)
                positions[index] = left.end
    except (IndexError, CorruptBatch):
        return False
    return bool((positions == ends).all())


def _sizes() -> NDArray[np.int64]:
    """The size of a record by its first two bytes; 0, which stops a scan, if its length has more bytes."""
    low = np.arange(1 << 16) & 0xFF
    high = np.arange(1 << 16) >> 8
    two_bytes = np.where(high < 0x80, 2 + ((low & 0x7F | high << 7) >> 1), 0)
    return np.where(low < 0x80, 1 + (low >> 1), two_bytes).astype(np.int64)


_SIZES = _sizes()


# Splitting.


def _split(data: bytes, whole: Scan, header: BatchHeader) -> list[Scan]:
    """Split a scan, unless compaction has removed records from the batch."""
    if header.last_offset_delta != header.record_count - 1:
        return [whole]
    pieces = whole.count // SPLIT_RECORDS
    length = (whole.end - whole.start) // pieces
    scans: list[Scan] = []
    start, first = whole.start, 0
    for piece in range(1, pieces):
        found = _find_record(data, whole.start + piece * length, whole.end, whole.count)
        if found is None or found[0] <= start or found[1] <= first:
            continue
        scans.append(Scan(start, found[0], whole.first + first, found[1] - first))
        start, first = found
    scans.append(Scan(start, whole.end, whole.first + first, whole.count - first))
    return scans


def _find_record(data: bytes, position: int, end: int, count: int) -> tuple[int, int] | None:
    """The next position at which a record seems to start, and its index in the batch."""
    for _ in range(SPLIT_CANDIDATES_MAX):
        match = _CANDIDATE.search(data, position, end)
        if match is None:
            return None
        position = match.start()
        number = _number_at(data, position, end, count)
        if number is not None:
            return position, number
        position += 1
    return None


def _number_at(data: bytes, position: int, end: int, count: int) -> int | None:
    """The index of the record at this position, if the next record has the next index."""
    try:
        number, after = _read_number(data, position)
        if not 0 < number < count - 1 or not after < end:
            return None
        following, after = _read_number(data, after)
    except CorruptBatch:
        return None
    return number if following == number + 1 and after <= end else None


def _read_number(data: bytes, position: int) -> tuple[int, int]:
    """(index of the record at this position, position after it)."""
    length, body = read_varint(data, position)
    _, after = read_varint(data, body + 1)
    number, _ = read_varint(data, after)
    if length < 0 or data[body] != 0:
        raise CorruptBatch("not the start of a record")
    return number, body + length
