"""ListOffsets: find offsets by timestamp or special timestamp."""

from collections import Counter

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.promise import MaybePromise, Promise, gather
from runnel.broker.runtime.replicated_log import ReplicatedLog
from runnel.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from runnel.model.errors import ApiError, ErrorCode
from runnel.ports.disk import TimestampedOffset

READ_COMMITTED = 1
CONSUMER = -1
DEBUGGING = -2
"""The replica id of tools that ask any replica how far it is."""
OFFSET_NOT_AVAILABLE_VERSION = 5

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
def list_offsets(request: ListOffsetsRequest, ctx: Context) -> MaybePromise[ListOffsetsResponse]:
    """Find offsets. Lookups by timestamp read files and run in a thread.

    v2 isolation level · v4 leader epoch · v6 flexible · v7 max timestamp · v8 earliest local ·
    v9 latest tiered · v10 timeout · v11 earliest pending upload
    """
    response = ListOffsetsResponse()
    lookups: list[Promise[None]] = []
    named = Counter(
        (topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    )
    for topic in request.topics:
        results: list[ListOffsetsPartitionResponse] = []
        for asked in topic.partitions:
            result = ListOffsetsPartitionResponse(asked.partition_index)
            results.append(result)
            try:
                if named[topic.name, asked.partition_index] > 1:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "duplicate partition")
                partition = ctx.broker.partition(topic.name, asked.partition_index)
                partition.check_leader_epoch(asked.current_leader_epoch)
                if request.replica_id != DEBUGGING:
                    partition.check_leader()
                if asked.timestamp not in (EARLIEST, EARLIEST_LOCAL) and request.replica_id != DEBUGGING:
                    ctx.broker.check_may_lead(partition)
                    _check_end_is_known(partition, request.replica_id, ctx.api_version)
                end_offset = _end_offset(partition, request)
                lookup = _find(partition, asked, end_offset, ctx.api_version, result)
            except ApiError as error:
                result.error_code = error.code
            else:
                if lookup is not None:
                    lookups.append(lookup)
        response.topics.append(ListOffsetsTopicResponse(topic.name, results))
    parts: list[MaybePromise[None]] = [*lookups]
    return gather(parts, lambda _: response)


def _end_offset(partition: ReplicatedLog, request: ListOffsetsRequest) -> int:
    """The end of what the requester may see; followers and tools see everything."""
    if request.replica_id != CONSUMER:
        return partition.log.written_offset
    if request.isolation_level == READ_COMMITTED:
        return partition.last_stable_offset
    return partition.high_watermark


def _check_end_is_known(partition: ReplicatedLog, replica_id: int, api_version: int) -> None:
    """Reject a request for the end while a new leader does not know what its predecessors committed."""
    if replica_id == CONSUMER and partition.has_followers and not partition.leader.has_committed_in_epoch:
        is_new = api_version >= OFFSET_NOT_AVAILABLE_VERSION
        error = ErrorCode.OFFSET_NOT_AVAILABLE if is_new else ErrorCode.LEADER_NOT_AVAILABLE
        raise ApiError(error, f"the high watermark of {partition.name} is not known yet")


def _find(
    partition: ReplicatedLog,
    asked: ListOffsetsPartition,
    end_offset: int,
    api_version: int,
    result: ListOffsetsPartitionResponse,
) -> Promise[None] | None:
    """Set the result; a promise if a thread looks it up."""
    log = partition.log
    timestamp = asked.timestamp
    if timestamp < 0 and _NEEDS_VERSION.get(timestamp, api_version + 1) > api_version:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"version {api_version} does not support {timestamp}")
    if timestamp == LATEST:
        result.offset = end_offset
        result.leader_epoch = partition.epoch
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        result.offset = log.log_start_offset
        result.leader_epoch = log.epoch_of(log.log_start_offset)
    elif timestamp == MAX_TIMESTAMP:
        return _fill(result, partition.find_max_timestamp(end_offset))
    elif timestamp not in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _fill(result, partition.find_timestamp(timestamp, end_offset))
    return None


def _fill(result: ListOffsetsPartitionResponse, lookup: Promise[TimestampedOffset | None]) -> Promise[None]:
    filled: Promise[None] = Promise()

    def found(outcome: TimestampedOffset | Exception | None) -> None:
        if isinstance(outcome, ApiError):
            result.error_code = outcome.code
        elif isinstance(outcome, Exception):
            filled.fail(outcome)
            return
        elif outcome is not None:
            result.offset = outcome.offset
            result.timestamp = outcome.timestamp_ms
            result.leader_epoch = outcome.leader_epoch
        filled.resolve(None)

    lookup.on_settled(found)
    return filled
