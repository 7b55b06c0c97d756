"""DescribeTopicPartitions: topics sorted by name, paginated."""

from bisect import bisect_left
from collections.abc import Iterable

from runnel.controller.image import MetadataImage
from runnel.controller.topic_names import check_topic_name
from runnel.controller.values import PartitionState, Topic
from runnel.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from runnel.model.errors import ApiError, ErrorCode


def describe_topic_partitions(
    image: MetadataImage,
    request: DescribeTopicPartitionsRequest,
    partitions_max: int,
    operations: int,
    names: list[str] | None = None,
) -> DescribeTopicPartitionsResponse:
    """Up to `partitions_max` partitions and a cursor for the next page.

    No topic names mean all topics, or those in `names`, from the cursor on.
    """
    # Pages without partitions would never make progress.
    limit = max(1, min(request.response_partition_limit, partitions_max))
    # Unknown topics do not count as partitions, but a page of nothing else ends as well.
    unknown_max = max(1, partitions_max)
    cursor = request.cursor
    if cursor is not None and cursor.partition_index < 0:
        bad = ErrorCode.INVALID_REQUEST.code
        return DescribeTopicPartitionsResponse(
            topics=[DescribeTopicPartitionsResponseTopic(bad, topic.name) for topic in request.topics]
        )
    response = DescribeTopicPartitionsResponse()
    for name in _names(image, request, cursor.topic_name if cursor else "") if names is None else names:
        first = cursor.partition_index if cursor and cursor.topic_name == name else 0
        if limit == 0 or unknown_max == 0:
            response.next_cursor = Cursor(name, first)
            break
        topic = image.topics.get(name)
        if topic is None and names is not None:
            # It was deleted since they were listed.
            continue
        if topic is None:
            response.topics.append(_unknown(name, operations))
            unknown_max -= 1
            continue
        described = _described(image, topic, range(first, min(first + limit, len(topic.partitions))))
        described.topic_authorized_operations = operations
        response.topics.append(described)
        limit -= len(described.partitions)
        if first + len(described.partitions) < len(topic.partitions):
            response.next_cursor = Cursor(name, first + len(described.partitions))
            break
    return response


def _names(image: MetadataImage, request: DescribeTopicPartitionsRequest, first: str) -> Iterable[str]:
    if request.topics:
        return sorted({topic.name for topic in request.topics if topic.name >= first})
    names = image.names_in_order()
    return names[bisect_left(names, first) :] if first else names


def _unknown(name: str, operations: int) -> DescribeTopicPartitionsResponseTopic:
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_topic_name(name)
    except ApiError as api_error:
        error = api_error.error
    return DescribeTopicPartitionsResponseTopic(error.code, name, topic_authorized_operations=operations)


def _described(image: MetadataImage, topic: Topic, indexes: range) -> DescribeTopicPartitionsResponseTopic:
    live = {broker.id for broker in image.live_brokers()}
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[_partition(index, topic.partitions[index], live) for index in indexes],
    )


def _partition(index: int, state: PartitionState, live: set[int]) -> DescribeTopicPartitionsResponsePartition:
    has_leader = state.leader in live
    return DescribeTopicPartitionsResponsePartition(
        error_code=0 if has_leader else ErrorCode.LEADER_NOT_AVAILABLE.code,
        partition_index=index,
        leader_id=state.leader if has_leader else -1,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        eligible_leader_replicas=list(state.eligible),
        last_known_elr=list(state.last_known_eligible),
        offline_replicas=[node_id for node_id in state.replicas if node_id not in live],
    )
