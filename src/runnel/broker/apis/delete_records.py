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

CHECK_INTERVAL_MS = 20
HIGH_WATERMARK = -1
"""The offset that means the current high watermark: delete all records."""


@handles(DeleteRecordsRequest)
def delete_records(request: DeleteRecordsRequest, ctx: Context) -> MaybePromise[DeleteRecordsResponse]:
    """Advance log start offsets; the response waits until they are durable. v2 flexible"""
    return gather(
        [
            gather(
                [_delete(topic.name, asked, request.timeout_ms, ctx) for asked in topic.partitions],
                partial(DeleteRecordsTopicResult, topic.name),
            )
            for topic in request.topics
        ],
        lambda topics: DeleteRecordsResponse(topics=topics),
    )


def _delete(
    topic: str, asked: DeleteRecordsPartition, timeout_ms: int, ctx: Context
) -> MaybePromise[DeleteRecordsPartitionResult]:
    index = asked.partition_index
    deleted: Promise[DeleteRecordsPartitionResult] = Promise()

    def stored(error: ApiError | None) -> None:
        if error is None:
            partition.notify_followers(wakes=True)
            _LowWatermark(ctx, partition, offset, timeout_ms, deleted).check()
        else:
            deleted.resolve(DeleteRecordsPartitionResult(index, -1, error.code))

    try:
        partition = ctx.broker.partition(topic, index)
        log = partition.log
        partition.check_leader()
        _check(topic, partition)
        offset = partition.high_watermark if asked.offset == HIGH_WATERMARK else asked.offset
        if not 0 <= offset <= partition.high_watermark:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{offset} is above the high watermark {partition.high_watermark}",
            )
        if offset <= log.log_start_offset:
            stored(None)
        else:
            log.delete_records_before(offset, stored)
    except ApiError as error:
        return DeleteRecordsPartitionResult(index, -1, error.code)
    return deleted


class _LowWatermark:
    """Waits until all live replicas have deleted the records below an offset."""

    def __init__(
        self,
        ctx: Context,
        partition: ReplicatedLog,
        offset: int,
        timeout_ms: int,
        deleted: Promise[DeleteRecordsPartitionResult],
    ) -> None:
        self._broker, self._partition = ctx.broker, partition
        self._offset, self._deleted = offset, deleted
        self._deadline_ms = ctx.broker.clock.monotonic_ms() + timeout_ms

    def check(self) -> None:
        """Respond, or check again soon."""
        partition, index = self._partition, self._partition.name.partition
        low_watermark = partition.log.log_start_offset
        error: ErrorCode = ErrorCode.NONE
        if partition.has_followers:
            low_watermark = partition.leader.low_watermark(low_watermark)
        if low_watermark < self._offset:
            if self._broker.clock.monotonic_ms() < self._deadline_ms and partition.is_leader:
                self._broker.timers.call_later(CHECK_INTERVAL_MS, self.check)
                return
            is_late = partition.is_leader
            error = ErrorCode.REQUEST_TIMED_OUT if is_late else ErrorCode.NOT_LEADER_OR_FOLLOWER
        self._deleted.resolve(DeleteRecordsPartitionResult(index, low_watermark, error.code))


def _check(topic: str, partition: ReplicatedLog) -> None:
    if topic in INTERNAL_TOPICS:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is an internal topic")
    config = partition.log.config
    if config.cleanup_compact and not config.cleanup_delete:
        raise ApiError(ErrorCode.POLICY_VIOLATION, f"cleanup.policy of {topic} does not include delete")
