"""DescribeLogDirs: sizes of partitions and of the volume."""

import asyncio
from collections.abc import Iterable, Sequence

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from runnel.model.limits import SLICE_ELEMENTS


@handles(DescribeLogDirsRequest)
async def describe_log_dirs(request: DescribeLogDirsRequest, ctx: Context) -> DescribeLogDirsResponse:
    """Describe the data directory with the sizes of the requested partitions, or of all.

    v2 flexible · v3 top-level error · v4 total and usable bytes of the volume · v5 cordoned directories
    """
    wanted: Iterable[tuple[str, Sequence[int]]]
    if request.topics is None:
        topics = ctx.broker.metadata.image.topics.values()
        wanted = [(topic.name, range(len(topic.partitions))) for topic in topics]
    else:
        wanted = [(topic.topic, topic.partitions) for topic in request.topics]
    total_bytes, usable_bytes = ctx.broker.disk.space_bytes()
    result = DescribeLogDirsResult(
        log_dir=ctx.broker.disk.directory_path(),
        topics=await _topics(ctx, wanted),
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
    )
    return DescribeLogDirsResponse(results=[result])


async def _topics(ctx: Context, wanted: Iterable[tuple[str, Sequence[int]]]) -> list[DescribeLogDirsTopic]:
    """The topics that have partitions here; other requests are served in between."""
    held = ctx.broker.partition_at
    found = []
    room = SLICE_ELEMENTS
    for name, indexes in wanted:
        topic = DescribeLogDirsTopic(name)
        for first in range(0, len(indexes), SLICE_ELEMENTS):
            chunk = indexes[first : first + SLICE_ELEMENTS]
            topic.partitions += [
                DescribeLogDirsPartition(index, partition.log.size_bytes)
                for index in chunk
                if (partition := held.get((name, index))) is not None
            ]
            room -= len(chunk)
            if room <= 0:
                room = SLICE_ELEMENTS
                await asyncio.sleep(0)
        if topic.partitions:
            found.append(topic)
    return found
