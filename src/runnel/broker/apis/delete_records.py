"""DeleteRecords: advance the log start offset."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
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
def delete_records(request: DeleteRecordsRequest, ctx: Context) -> DeleteRecordsResponse:
    """Advance log start offsets. v2 flexible"""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                topic.name, [_delete(topic.name, asked, ctx) for asked in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _delete(topic: str, asked: DeleteRecordsPartition, ctx: Context) -> DeleteRecordsPartitionResult:
    try:
        partition = ctx.broker.partition(topic, asked.partition_index)
        if topic in INTERNAL_TOPICS:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is an internal topic")
        log = partition.log
        if log.config.cleanup_compact and not log.config.cleanup_delete:
            raise ApiError(ErrorCode.POLICY_VIOLATION, f"cleanup.policy of {topic} does not include delete")
        offset = partition.high_watermark if asked.offset == HIGH_WATERMARK else asked.offset
        if not 0 <= offset <= partition.high_watermark:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{offset} is above the high watermark {partition.high_watermark}",
            )
        if offset > log.log_start_offset:
            log.delete_records_before(offset)
    except ApiError as error:
        return DeleteRecordsPartitionResult(asked.partition_index, -1, error.code)
    return DeleteRecordsPartitionResult(asked.partition_index, log.log_start_offset)
