"""DescribeQuorum: the state of the metadata quorum, as its leader knows it."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.quorum_log import METADATA_PARTITION
from runnel.messages.describe_quorum import (
    AnsweredPartitionData,
    AnsweredTopicData,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
)
from runnel.model.errors import ErrorCode, NotController
from runnel.model.ids import NO_ID
from runnel.raft.leader import NEVER, Leader, Progress
from runnel.raft.voters import Voter


@handles(DescribeQuorumRequest)
def describe_quorum(request: DescribeQuorumRequest, ctx: Context) -> DescribeQuorumResponse:
    """Describe voters and observers, how far they have fetched, and the high watermark.

    v1 fetch timestamps · v2 directories, nodes and their listeners
    """
    asked = [
        (topic.topic_name, part.partition_index) for topic in request.topics for part in topic.partitions
    ]
    if asked != [METADATA_PARTITION]:
        return _no_quorum(request)
    leader = ctx.broker.quorum.core.leader
    if leader is None:
        # A broker forwards the request to the leader; a controller that resigned meanwhile reports it.
        raise NotController("this node does not lead the metadata quorum")
    now = _Now(ctx)
    partition = AnsweredPartitionData(
        partition_index=METADATA_PARTITION.partition,
        error_message=None,
        leader_id=leader.leader_id,
        leader_epoch=leader.epoch,
        high_watermark=leader.high_watermark,
        current_voters=[_voter(voter, leader, now) for voter in leader.voters],
        observers=[now.state_of(each) for each in leader.observers.values()],
    )
    return DescribeQuorumResponse(
        error_message=None,
        topics=[AnsweredTopicData(METADATA_PARTITION.topic, [partition])],
        nodes=_nodes(ctx),
    )


def _no_quorum(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code
    reason = "Only the metadata partition has a quorum."
    return DescribeQuorumResponse(
        topics=[
            AnsweredTopicData(
                topic.topic_name,
                [AnsweredPartitionData(part.partition_index, error, reason) for part in topic.partitions],
            )
            for topic in request.topics
        ],
        error_message=None,
    )


def _voter(voter: Voter, leader: Leader, now: "_Now") -> ReplicaState:
    if voter.matches(leader.node):
        state = ReplicaState(voter.key.id, NO_ID, now.end_offset, now.wall_ms, now.wall_ms)
    else:
        state = now.state_of(leader.replicas[voter.key.id])
    # As in Kafka, configured voters have no directories.
    state.replica_directory_id = voter.key.directory_id
    return state


class _Now:
    """The end of the leader's log, and the time of the request on both clocks."""

    def __init__(self, ctx: Context) -> None:
        self.end_offset = ctx.broker.quorum.end_offset
        self.wall_ms = ctx.broker.clock.now_ms()
        self._monotonic_ms = ctx.broker.clock.monotonic_ms()

    def state_of(self, progress: Progress) -> ReplicaState:
        """The state of another replica, as the leader knows it."""
        return ReplicaState(
            replica_id=progress.key.id,
            replica_directory_id=progress.key.directory_id,
            log_end_offset=progress.end_offset,
            last_fetch_timestamp=self._wall(progress.fetched_ms),
            last_caught_up_timestamp=self._wall(progress.caught_up_ms),
        )

    def _wall(self, monotonic_ms: int) -> int:
        return NEVER if monotonic_ms == NEVER else self.wall_ms - (self._monotonic_ms - monotonic_ms)


def _nodes(ctx: Context) -> list[Node]:
    """The voters and their listeners; a quorum of one is reached at the listener of its broker."""
    broker = ctx.broker
    if not broker.controller_endpoints:
        return [Node(broker.node_id, [Listener(broker.listener, broker.host, broker.port)])]
    return [
        Node(voter.key.id, [Listener(each.name, each.host, each.port) for each in voter.endpoints])
        for voter in broker.quorum.voters
    ]
