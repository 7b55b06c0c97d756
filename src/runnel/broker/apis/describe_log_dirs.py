"""DescribeLogDirs: sizes of partitions and of the volume."""

from collections.abc import Iterable

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from runnel.model.ids import TopicPartition


@handles(DescribeLogDirsRequest)
def describe_log_dirs(request: DescribeLogDirsRequest, ctx: Context) -> DescribeLogDirsResponse:
    """Describe the data directory with the sizes of the requested partitions, or of all.

    v2 flexible · v3 top-level error · v4 total and usable bytes of the volume · v5 cordoned directories
    """
    wanted: Iterable[tuple[str, Iterable[int]]]
    if request.topics is None:
        topics = ctx.broker.metadata.image.topics.values()
        wanted = [(topic.name, range(len(topic.partitions))) for topic in topics]
    else:
        wanted = [(topic.topic, topic.partitions) for topic in request.topics]
    total_bytes, usable_bytes = ctx.broker.disk.space_bytes()
    result = DescribeLogDirsResult(
        log_dir=ctx.broker.disk.directory_path(),
        topics=[topic for name, indexes in wanted if (topic := _topic(ctx, name, indexes)).partitions],
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
    )
    return DescribeLogDirsResponse(results=[result])


def _topic(ctx: Context, name: str, indexes: Iterable[int]) -> DescribeLogDirsTopic:
    held = ctx.broker.partitions
    return DescribeLogDirsTopic(
        name,
        [
            DescribeLogDirsPartition(index, partition.log.size_bytes)
            for index in indexes
            if (partition := held.get(TopicPartition(name, index))) is not None
        ],
    )
