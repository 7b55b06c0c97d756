"""OffsetForLeaderEpoch: end offset of a leader epoch, for truncation detection (KIP-320)."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from runnel.model.errors import ApiError


@handles(OffsetForLeaderEpochRequest)
def offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, ctx: Context
) -> OffsetForLeaderEpochResponse:
    """Find end offsets of epochs. v3 replica id · v4 flexible"""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic.topic, [_end_of(topic.topic, asked, ctx) for asked in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _end_of(topic: str, asked: OffsetForLeaderPartition, ctx: Context) -> EpochEndOffset:
    try:
        partition = ctx.broker.partition(topic, asked.partition)
        partition.check_leader_epoch(asked.current_leader_epoch)
        partition.check_leader()
        ctx.broker.check_may_lead(partition)
    except ApiError as error:
        return EpochEndOffset(error.code, asked.partition)
    epoch, end_offset = partition.log.epoch_end(asked.leader_epoch)
    return EpochEndOffset(0, asked.partition, epoch, end_offset)
