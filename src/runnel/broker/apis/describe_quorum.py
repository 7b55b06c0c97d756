"""DescribeQuorum: state of the metadata quorum, which has a single voter."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.metadata_log import METADATA_EPOCH, METADATA_PARTITION
from runnel.messages.describe_quorum import (
    AnsweredPartitionData,
    AnsweredTopicData,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
)
from runnel.model.errors import ErrorCode


@handles(DescribeQuorumRequest)
def describe_quorum(request: DescribeQuorumRequest, ctx: Context) -> DescribeQuorumResponse:
    """Describe the voter, its log end offset and the high watermark.

    v1 fetch timestamps · v2 directories, nodes and their listeners
    """
    asked = [
        (topic.topic_name, part.partition_index) for topic in request.topics for part in topic.partitions
    ]
    if asked != [METADATA_PARTITION]:
        return DescribeQuorumResponse(
            topics=[
                AnsweredTopicData(
                    topic.topic_name,
                    [
                        AnsweredPartitionData(
                            part.partition_index,
                            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code,
                            "Only the metadata partition has a quorum.",
                        )
                        for part in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
            error_message=None,
        )
    broker = ctx.broker
    partition = AnsweredPartitionData(
        partition_index=METADATA_PARTITION.partition,
        error_message=None,
        leader_id=broker.node_id,
        leader_epoch=METADATA_EPOCH,
        high_watermark=broker.metadata.committed_offset,
        current_voters=[_voter(ctx)],
    )
    return DescribeQuorumResponse(
        error_message=None,
        topics=[AnsweredTopicData(METADATA_PARTITION.topic, [partition])],
        nodes=[Node(broker.node_id, [Listener(broker.listener, broker.host, broker.port)])],
    )


def _voter(ctx: Context) -> ReplicaState:
    now_ms = ctx.broker.clock.now_ms()
    return ReplicaState(
        replica_id=ctx.broker.node_id,
        replica_directory_id=ctx.broker.disk.directory_id(),
        log_end_offset=ctx.broker.metadata.log.end_offset,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
