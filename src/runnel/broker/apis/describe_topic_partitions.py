"""DescribeTopicPartitions: topics and their partitions, paginated."""

from bisect import bisect_left
from collections.abc import Callable
from functools import partial

from runnel.broker.apis.handlers import handles
from runnel.broker.apis.metadata import TOPIC_OPERATIONS
from runnel.broker.runtime.blocking import Job
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.promise import MaybePromise
from runnel.controller import describe_topics
from runnel.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from runnel.model.limits import SLICE_ELEMENTS


@handles(DescribeTopicPartitionsRequest)
def describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, ctx: Context
) -> MaybePromise[DescribeTopicPartitionsResponse]:
    """A page of the requested topics, sorted by name, and the cursor of the next page."""
    shows = ctx.shows_topic
    if request.topics or shows is None:
        return _page(request, ctx, None)
    # The cursor must not name a topic that is hidden, and most may be.
    names = ctx.broker.metadata.image.names_in_order()
    first = request.cursor.topic_name if request.cursor is not None else ""
    find = partial(_visible, names, first, shows)
    if len(names) <= SLICE_ELEMENTS:
        return _page(request, ctx, find())
    return ctx.broker.run(_page_of_many(request, ctx, find))


def _visible(names: list[str], first: str, shows: Callable[[str], bool]) -> list[str]:
    return [name for name in names[bisect_left(names, first) :] if shows(name)]


async def _page_of_many(
    request: DescribeTopicPartitionsRequest, ctx: Context, find: Callable[[], list[str]]
) -> DescribeTopicPartitionsResponse:
    return _page(request, ctx, await ctx.broker.disk.run_blocking(Job(find)))


def _page(
    request: DescribeTopicPartitionsRequest, ctx: Context, names: list[str] | None
) -> DescribeTopicPartitionsResponse:
    partitions_max = ctx.broker.settings["max.request.partition.size.limit"]
    return describe_topics.describe_topic_partitions(
        ctx.broker.metadata.image, request, partitions_max, TOPIC_OPERATIONS, names
    )
