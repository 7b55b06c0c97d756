"""Vote: a candidate of the metadata quorum requests this node's vote."""

from runnel.broker.apis.handlers import handles
from runnel.broker.apis.quorum_requests import check_cluster, sole_partition
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.promise import MaybePromise, chain
from runnel.broker.runtime.quorum_wire import node_endpoints
from runnel.messages.vote import (
    AnsweredPartitionData,
    AnsweredTopicData,
    NodeEndpoint,
    VoteRequest,
    VoteResponse,
)
from runnel.raft.values import ReplicaKey, Vote, VoteReply


@handles(VoteRequest)
def vote(request: VoteRequest, ctx: Context) -> MaybePromise[VoteResponse]:
    """Vote for the candidate, or reply whether it would be voted for.

    v1 directory ids and the leader's endpoint · v2 pre-vote
    """
    check_cluster(request.cluster_id, ctx)
    asked = sole_partition(request.topics)
    topic = request.topics[0].topic_name
    quorum = ctx.broker.quorum
    reply = quorum.core.vote_requested(
        Vote(
            asked.replica_epoch,
            ReplicaKey(asked.replica_id, asked.replica_directory_id),
            ReplicaKey(request.voter_id, asked.voter_directory_id),
            asked.last_offset_epoch,
            asked.last_offset,
            asked.pre_vote,
        ),
        ctx.broker.clock.monotonic_ms(),
    )

    def respond(reply: VoteReply) -> VoteResponse:
        partition = AnsweredPartitionData(0, reply.error.code, reply.leader_id, reply.epoch, reply.is_granted)
        return VoteResponse(
            topics=[AnsweredTopicData(topic, [partition])],
            node_endpoints=node_endpoints(NodeEndpoint, reply, ctx.listener),
        )

    return chain(quorum.answer(reply), respond)
