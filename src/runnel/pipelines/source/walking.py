"""Where records begin.

Only a record itself has its length, so a batch is a walk from one record to the next: slow in Python, step
by step. Here many walks go side by side, and a step is one for all of them.

Each batch is a walk of its own. A long one is cut into several, at places that look like the beginning of a
record; whether they are is seen at the end, when every walk has to arrive where the next one set out.
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

WALKS_MIN = 24
"""With fewer walks side by side, a step of all of them costs more than their steps one by one."""
CUT_RECORDS = 256
"""A batch of more records is cut into walks of about so many."""
GUESSES_MAX = 16
"""Where bytes look like so many records that are none, a batch is not cut there."""

_MAY_BEGIN = re.compile(rb"[\x80-\xff]?[\x00-\x7f]\x00", re.DOTALL)
"""A length of one or two bytes, then the attributes of a record, which are always zero."""


@dataclass(slots=True)
class Walk:
    """So many records from one position to another, and the number of the first of them."""

    start: int
    end: int
    first: int
    count: int


def record_starts(data: bytes, sizes: Sequence[int], headers: Sequence[BatchHeader]) -> Positions:
    """Where each record begins, its length first; the batches follow one another in `data`."""
    walks: list[Walk] = []
    position = total = 0
    for size, header in zip(sizes, headers, strict=True):
        if not 0 < header.record_count <= size:
            raise CorruptBatch(f"{size} bytes cannot hold {header.record_count} records")
        whole = Walk(position, position + size, total, header.record_count)
        walks += _cut(data, whole, header) if header.record_count >= 2 * CUT_RECORDS else (whole,)
        position += size
        total += header.record_count
    starts: Positions = np.empty(total, dtype=np.int64)
    if len(walks) < WALKS_MIN or not _walk_side_by_side(data, walks, starts):
        position = total = 0
        for size, header in zip(sizes, headers, strict=True):
            _walk(data, Walk(position, position + size, total, header.record_count), starts)
            position += size
            total += header.record_count
    return starts


# One by one.


def _walk(data: bytes, walk: Walk, starts: Positions) -> None:
    """Fill in the starts of one walk's records; CorruptBatch if it does not arrive."""
    found: list[int] = []
    append = found.append
    position, end = walk.start, walk.end
    try:
        while position < end:
            append(position)
            low = data[position]
            if low < 0x80:
                position += 1 + (low >> 1)
            else:
                high = data[position + 1]
                if high < 0x80:
                    # Zigzag doubles a number that is not negative, and lengths never are.
                    position += 2 + ((low & 0x7F | high << 7) >> 1)
                else:
                    length, position = read_varint(data, position)
                    position += max(length, 0)
    except IndexError:
        raise CorruptBatch("a record has no end") from None
    if position != end or len(found) != walk.count:
        raise CorruptBatch(f"{walk.end - walk.start} bytes do not hold {walk.count} whole records")
    starts[walk.first : walk.first + walk.count] = found


# Side by side.


def _walk_side_by_side(data: bytes, walks: list[Walk], starts: Positions) -> bool:
    """Fill in the starts of all records; False if one of the walks does not arrive."""
    # The longest first: those that still go are then always the first so many.
    walks = sorted(walks, key=lambda walk: walk.count, reverse=True)
    counts = np.array([walk.count for walk in walks])
    ends = np.array([walk.end for walk in walks])
    slots = np.array([walk.first for walk in walks])
    positions = np.array([walk.start for walk in walks])
    view: Bytes = np.frombuffer(data, dtype=np.uint8)
    steps = int(counts[WALKS_MIN - 1])
    going = np.searchsorted(-counts, -np.arange(steps), side="left").tolist()
    try:
        for step in range(steps):
            here = positions[: going[step]]
            starts[slots[: going[step]] + step] = here
            here += _SIZES.take(view.take(here) + (view.take(here + 1).astype(np.intp) << 8))
        # The few that are left have a long way to go.
        for index in range(going[-1] if going else 0):
            left = Walk(
                int(positions[index]),
                walks[index].end,
                walks[index].first + steps,
                walks[index].count - steps,
            )
            if left.count > 0:
                _walk(data, left, starts)
                positions[index] = left.end
    except (IndexError, CorruptBatch):
        return False
    return bool((positions == ends).all())


def _sizes() -> NDArray[np.int64]:
    """The size of a record by its first two bytes; 0, which stops a walk, if its length takes more."""
    low = np.arange(1 << 16) & 0xFF
    high = np.arange(1 << 16) >> 8
    two_bytes = np.where(high < 0x80, 2 + ((low & 0x7F | high << 7) >> 1), 0)
    return np.where(low < 0x80, 1 + (low >> 1), two_bytes).astype(np.int64)


_SIZES = _sizes()


# Cutting.


def _cut(data: bytes, whole: Walk, header: BatchHeader) -> list[Walk]:
    """The walk in pieces, for batches that compaction has left as they were."""
    if header.last_offset_delta != header.record_count - 1:
        return [whole]
    pieces = whole.count // CUT_RECORDS
    length = (whole.end - whole.start) // pieces
    walks: list[Walk] = []
    start, first = whole.start, 0
    for piece in range(1, pieces):
        found = _find_record(data, whole.start + piece * length, whole.end, whole.count)
        if found is None or found[0] <= start or found[1] <= first:
            continue
        walks.append(Walk(start, found[0], whole.first + first, found[1] - first))
        start, first = found
    walks.append(Walk(start, whole.end, whole.first + first, whole.count - first))
    return walks


def _find_record(data: bytes, position: int, end: int, count: int) -> tuple[int, int] | None:
    """A position from here on at which a record seems to begin, and its number in the batch."""
    for _ in range(GUESSES_MAX):
        match = _MAY_BEGIN.search(data, position, end)
        if match is None:
            return None
        position = match.start()
        number = _number_at(data, position, end, count)
        if number is not None:
            return position, number
        position += 1
    return None


def _number_at(data: bytes, position: int, end: int, count: int) -> int | None:
    """The number of the record here, if the one behind it carries the next number."""
    try:
        number, behind = _read_number(data, position)
        if not 0 < number < count - 1 or not behind < end:
            return None
        following, behind = _read_number(data, behind)
    except CorruptBatch:
        return None
    return number if following == number + 1 and behind <= end else None


def _read_number(data: bytes, position: int) -> tuple[int, int]:
    """(number of the record that begins here, position behind it)."""
    length, body = read_varint(data, position)
    _, behind = read_varint(data, body + 1)
    number, _ = read_varint(data, behind)
    if length < 0 or data[body] != 0:
        raise CorruptBatch("no record begins here")
    return number, body + length
