"""Start positions as users write them: earliest, latest, an offset, -N, or a time."""

import re
import time
from collections.abc import Sequence

from runnel.client.cluster import Cluster
from runnel.client.moments import parse_moment_ms
from runnel.client.offsets import READ_UNCOMMITTED, end_offsets, offsets_since, start_offsets
from runnel.model.ids import TopicPartition

_NUMBER = re.compile(r"[+-]?\d{1,30}")
MS_MAX = 2**63 - 1


async def start_positions(
    cluster: Cluster, partitions: Sequence[TopicPartition], start: str, *, isolation: int = READ_UNCOMMITTED
) -> dict[TopicPartition, int]:
    """The offsets to begin at; an offset is clamped to each partition. Raises InvalidMoment."""
    if start == "earliest":
        return await start_offsets(cluster, partitions)
    if start == "latest":
        return await end_offsets(cluster, partitions, isolation=isolation)
    if _NUMBER.fullmatch(start) is None:
        moment_ms = parse_moment_ms(start, time.time_ns() // 1_000_000)
        # Negative ones have other meanings in ListOffsets.
        return await offsets_since(cluster, partitions, min(max(moment_ms, 0), MS_MAX))
    number = int(start)
    starts = await start_offsets(cluster, partitions)
    ends = await end_offsets(cluster, partitions, isolation=isolation)
    if number < 0:
        return {partition: max(ends[partition] + number, starts[partition]) for partition in partitions}
    # Partitions have different ranges: clamp the offset to each.
    return {partition: min(max(number, starts[partition]), ends[partition]) for partition in partitions}
