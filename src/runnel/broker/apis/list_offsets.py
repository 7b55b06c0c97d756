"""ListOffsets: the offset behind a moment, or behind one of the moments that have a name."""

from collections import Counter

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.partition import Partition
from runnel.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from runnel.model.errors import ApiError, ErrorCode

READ_COMMITTED = 1

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

_NEEDS_VERSION = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}


@handles(ListOffsetsRequest)
def list_offsets(request: ListOffsetsRequest, ctx: Context) -> ListOffsetsResponse:
    """Find offsets.

    v2 isolation level · v4 leader epoch · v6 flexible · v7 max timestamp · v8 earliest local ·
    v9 latest tiered · v10 timeout · v11 earliest pending upload
    """
    response = ListOffsetsResponse()
    named = Counter(
        (topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    )
    for topic in request.topics:
        results = []
        for asked in topic.partitions:
            try:
                if named[topic.name, asked.partition_index] > 1:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "a partition may be named once only")
                partition = ctx.broker.partition(topic.name, asked.partition_index)
                partition.leader.check_epoch(asked.current_leader_epoch)
                result = _find(partition, asked, request.isolation_level, ctx.api_version)
            except ApiError as error:
                result = ListOffsetsPartitionResponse(asked.partition_index, error.code)
            results.append(result)
        response.topics.append(ListOffsetsTopicResponse(topic.name, results))
    return response


def _find(
    partition: Partition, asked: ListOffsetsPartition, isolation_level: int, api_version: int
) -> ListOffsetsPartitionResponse:
    log = partition.log
    end_offset = partition.high_watermark
    if isolation_level == READ_COMMITTED:
        end_offset = partition.last_stable_offset
    timestamp = asked.timestamp
    if timestamp < 0 and _NEEDS_VERSION.get(timestamp, api_version + 1) > api_version:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"version {api_version} has no timestamp {timestamp}")
    result = ListOffsetsPartitionResponse(asked.partition_index)
    if timestamp == LATEST:
        result.offset = end_offset
        result.leader_epoch = partition.leader.epoch
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        result.offset = log.log_start_offset
        result.leader_epoch = log.epoch_of(log.log_start_offset)
    elif timestamp not in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        by_time = timestamp != MAX_TIMESTAMP
        found = (
            log.offset_for_timestamp(timestamp, end_offset)
            if by_time
            else log.offset_of_max_timestamp(end_offset)
        )
        if found is not None:
            result.offset = found.offset
            result.timestamp = found.timestamp_ms
            result.leader_epoch = found.leader_epoch
    return result
