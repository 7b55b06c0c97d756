"""The input of one task of an audit: a range of offsets of a broker, or a segment file."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OffsetSplit:
    """Offsets [start, end) of a partition on a broker."""

    topic: str
    partition: int
    start: int
    end: int
    is_first: bool
    """The first split includes a batch that starts before it; other splits do not."""


@dataclass(frozen=True, slots=True)
class FileSplit:
    """One segment file of a stopped broker."""

    topic: str
    partition: int
    path: str
    base_offset: int
    is_last: bool


def split_offsets(topic: str, partition: int, start: int, end: int, offsets_max: int) -> list[OffsetSplit]:
    """Split a partition into ranges of at most this many offsets."""
    if start >= end:
        return []
    starts = range(start, end, offsets_max)
    return [
        OffsetSplit(topic, partition, first, min(first + offsets_max, end), first == start)
        for first in starts
    ]
