"""Splits the offsets of a batch into tasks, and limits them. No I/O."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from runnel.model.ids import NO_ID, TopicPartition

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets [start, end) of one partition."""

    partition: TopicPartition
    start: int
    end: int
    topic_id: bytes = NO_ID

    def __len__(self) -> int:
        return max(self.end - self.start, 0)


def split_ranges(ranges: Sequence[Range], min_partitions: int | None, max_records: int | None) -> list[Range]:
    """The same offsets in the same order, split as requested; empty ranges are dropped."""
    pieces: list[Range] = []
    filled = [whole for whole in ranges if len(whole)]
    for whole, count in zip(filled, _shares(filled, min_partitions), strict=True):
        if max_records is not None:
            count = max(count, -(-len(whole) // max_records))
        pieces += _pieces(whole, min(count, len(whole)))
    return pieces


def _shares(ranges: Sequence[Range], total: int | None) -> list[int]:
    """The number of pieces of each range, for `total` pieces of about equal length."""
    counts = [1] * len(ranges)
    if total is None or not ranges:
        return counts
    size = sum(len(whole) for whole in ranges)
    counts = [max(1, total * len(whole) // size) for whole in ranges]
    while sum(counts) < total:
        # The range with the longest pieces gets one more; single offsets cannot be split.
        index = max(range(len(ranges)), key=lambda index: len(ranges[index]) / counts[index])
        if counts[index] >= len(ranges[index]):
            break
        counts[index] += 1
    return counts


def _pieces(whole: Range, count: int) -> list[Range]:
    size = len(whole)
    bounds = [whole.start + size * index // count for index in range(count + 1)]
    return [Range(whole.partition, start, end, whole.topic_id) for start, end in pairwise(bounds)]


def limited(starts: Offsets, ends: Offsets, offsets_max: int) -> dict[TopicPartition, int]:
    """End offsets such that about `offsets_max` offsets are read, in proportion to the lag of each partition.

    Every partition with lag gets at least one offset, so that none starves.
    """
    rests = {partition: max(end - starts.get(partition, 0), 0) for partition, end in ends.items()}
    total = sum(rests.values())
    if total <= offsets_max:
        return dict(ends)
    return {
        partition: end - rest + max(offsets_max * rest // total, 1) if (rest := rests[partition]) else end
        for partition, end in ends.items()
    }


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Offsets in the JSON format of Spark's Kafka connector."""
    table: dict[str, dict[str, int]] = {}
    for (topic, number), offset in sorted(offsets.items()):
        table.setdefault(topic, {})[str(number)] = offset
    return table


def from_json(table: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """The inverse of `to_json`."""
    return {
        TopicPartition(topic, int(number)): int(offset)
        for topic, numbers in table.items()
        for number, offset in numbers.items()
    }


def partition_names(partitions: Iterable[TopicPartition], most: int = 5) -> str:
    """The names of some partitions, for messages."""
    names = [str(partition) for partition in sorted(partitions)]
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
