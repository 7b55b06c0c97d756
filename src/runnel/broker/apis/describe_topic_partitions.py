"""DescribeTopicPartitions: topics and their partitions, paginated."""

from runnel.broker.apis.handlers import handles
from runnel.broker.apis.metadata import TOPIC_OPERATIONS
from runnel.broker.runtime.context import Context
from runnel.controller import describe_topics
from runnel.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)


@handles(DescribeTopicPartitionsRequest)
def describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, ctx: Context
) -> DescribeTopicPartitionsResponse:
    """A page of the requested topics, sorted by name, and the cursor of the next page."""
    partitions_max = ctx.broker.settings["max.request.partition.size.limit"]
    return describe_topics.describe_topic_partitions(
        ctx.broker.metadata.image, request, partitions_max, TOPIC_OPERATIONS
    )
