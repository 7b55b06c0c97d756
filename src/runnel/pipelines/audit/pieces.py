"""What one task of an audit reads: a stretch of offsets from a broker, or a segment file."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BrokerPiece:
    """Offsets [start, end) of a partition, which a broker has."""

    topic: str
    partition: int
    start: int
    end: int
    is_first: bool
    """The first piece of a partition takes the batch that begins before it; others leave it to theirs."""


@dataclass(frozen=True, slots=True)
class FilePiece:
    """One segment of a broker that is not running."""

    topic: str
    partition: int
    path: str
    base_offset: int
    is_last: bool


def cut(topic: str, partition: int, start: int, end: int, offsets_max: int) -> list[BrokerPiece]:
    """A partition in pieces of at most so many offsets."""
    if start >= end:
        return []
    starts = range(start, end, offsets_max)
    return [
        BrokerPiece(topic, partition, first, min(first + offsets_max, end), first == start)
        for first in starts
    ]
