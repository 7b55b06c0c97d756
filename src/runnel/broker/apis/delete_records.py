"""DeleteRecords: advance the log start offset."""

from functools import partial

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.promise import MaybePromise, Promise, gather
from runnel.broker.runtime.replicated_log import ReplicatedLog
from runnel.controller.values import INTERNAL_TOPICS
from runnel.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from runnel.model.errors import ApiError, ErrorCode

HIGH_WATERMARK = -1
"""Offset that stands for the current high watermark: delete all records."""


@handles(DeleteRecordsRequest)
def delete_records(request: DeleteRecordsRequest, ctx: Context) -> MaybePromise[DeleteRecordsResponse]:
    """Advance log start offsets; the response waits until they are durable. v2 flexible"""
    return gather(
        [
            gather(
                [_delete(topic.name, asked, ctx) for asked in topic.partitions],
                partial(DeleteRecordsTopicResult, topic.name),
            )
            for topic in request.topics
        ],
        lambda topics: DeleteRecordsResponse(topics=topics),
    )


def _delete(
    topic: str, asked: DeleteRecordsPartition, ctx: Context
) -> MaybePromise[DeleteRecordsPartitionResult]:
    index = asked.partition_index
    deleted: Promise[DeleteRecordsPartitionResult] = Promise()

    def stored(error: ApiError | None) -> None:
        if error is None:
            deleted.resolve(DeleteRecordsPartitionResult(index, log.log_start_offset))
        else:
            deleted.resolve(DeleteRecordsPartitionResult(index, -1, error.code))

    try:
        partition = ctx.broker.partition(topic, index)
        log = partition.log
        _check(topic, partition)
        offset = partition.high_watermark if asked.offset == HIGH_WATERMARK else asked.offset
        if not 0 <= offset <= partition.high_watermark:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{offset} is above the high watermark {partition.high_watermark}",
            )
        if offset <= log.log_start_offset:
            return DeleteRecordsPartitionResult(index, log.log_start_offset)
        log.delete_records_before(offset, stored)
    except ApiError as error:
        return DeleteRecordsPartitionResult(index, -1, error.code)
    return deleted


def _check(topic: str, partition: ReplicatedLog) -> None:
    if topic in INTERNAL_TOPICS:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is an internal topic")
    config = partition.log.config
    if config.cleanup_compact and not config.cleanup_delete:
        raise ApiError(ErrorCode.POLICY_VIOLATION, f"cleanup.policy of {topic} does not include delete")
