"""How many records a topic has in each interval of time, by lookups of offsets: no record is read."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from runnel.client.cluster import Cluster
from runnel.client.offsets import MAX_TIMESTAMP, end_offsets, list_offsets, offsets_since, start_offsets
from runnel.model.ids import TopicPartition
from runnel.visual.units import time_step_ms

INTERVALS = 48
INTERVALS_MIN = 4
LOOKUPS_MAX = 3000
"""A lookup is a search in the index of a partition. With many partitions there are fewer intervals."""
LOOKUPS_AT_ONCE = 4
FUTURE_MS = 86_400_000
"""Records that claim to be from later than tomorrow are in the last interval."""

Positions = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Stretch:
    """What a histogram is about."""

    partitions: tuple[TopicPartition, ...]
    isolation: int
    until_ms: int | None = None
    """Only what was there at this time."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval [start, end) and the number of offsets in it."""

    start_ms: int
    end_ms: int
    count: int


def edges_between(first_ms: int, last_ms: int, intervals: int) -> list[int]:
    """Round times of which the first is not after `first_ms`, and the last is after `last_ms`."""
    step_ms = time_step_ms(last_ms - first_ms + 1, intervals - 1)
    begin = first_ms // step_ms
    return [index * step_ms for index in range(begin, last_ms // step_ms + 2)]


def intervals_of(edges: Sequence[int], offsets: Sequence[Positions]) -> list[Interval]:
    """The intervals between edges, of which the offsets of each partition are known."""
    return [
        Interval(start_ms, end_ms, sum(max(after[each] - before[each], 0) for each in before))
        for (start_ms, end_ms), (before, after) in zip(pairwise(edges), pairwise(offsets), strict=True)
    ]


async def time_histogram(cluster: Cluster, stretch: Stretch) -> list[Interval] | None:
    """The intervals from the first record to the last; None if there are too many partitions."""
    partitions = list(stretch.partitions)
    intervals = min(INTERVALS, LOOKUPS_MAX // max(len(partitions), 1))
    if intervals < INTERVALS_MIN:
        return None
    low, high = await _bounds(cluster, stretch)
    filled = [each for each in partitions if high[each] > low[each]]
    if not filled:
        return []
    latest_ms = time.time_ns() // 1_000_000 + FUTURE_MS
    if stretch.until_ms is not None:
        latest_ms = min(latest_ms, stretch.until_ms)
    first, last = await asyncio.gather(
        list_offsets(cluster, dict.fromkeys(filled, 0)),
        list_offsets(cluster, dict.fromkeys(filled, MAX_TIMESTAMP)),
    )
    first_ms = min((found.timestamp_ms for found in first.values() if found.timestamp_ms >= 0), default=-1)
    if first_ms < 0:
        # Records of Kafka's oldest format have no timestamps.
        return []
    first_ms = min(first_ms, latest_ms)
    last_ms = min(max(first_ms, *(found.timestamp_ms for found in last.values())), latest_ms)
    edges = edges_between(first_ms, last_ms, intervals)
    limit = asyncio.Semaphore(LOOKUPS_AT_ONCE)

    async def at(edge_ms: int) -> Positions:
        async with limit:
            found = await offsets_since(cluster, filled, edge_ms)
        return {each: min(max(found[each], low[each]), high[each]) for each in filled}

    inner = await asyncio.gather(*(at(edge) for edge in edges[1:-1]))
    ends = {each: high[each] for each in filled}
    return intervals_of(edges, [{each: low[each] for each in filled}, *inner, ends])


async def _bounds(cluster: Cluster, stretch: Stretch) -> tuple[Positions, Positions]:
    low, high = await asyncio.gather(
        start_offsets(cluster, stretch.partitions),
        end_offsets(cluster, stretch.partitions, isolation=stretch.isolation),
    )
    if stretch.until_ms is not None:
        until = await offsets_since(cluster, stretch.partitions, stretch.until_ms)
        high = {each: max(min(high[each], until[each]), low[each]) for each in high}
    return low, high
