"""BeginQuorumEpoch: the new leader of the metadata quorum announces itself."""

from runnel.broker.apis.handlers import handles
from runnel.broker.apis.quorum_requests import check_cluster, sole_partition
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.promise import MaybePromise, chain
from runnel.broker.runtime.quorum_wire import node_endpoints
from runnel.messages.begin_quorum_epoch import (
    AnsweredPartitionData,
    AnsweredTopicData,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    NodeEndpoint,
)
from runnel.raft.values import BeginEpoch, Endpoint, ReplicaKey, Reply


@handles(BeginQuorumEpochRequest)
def begin_quorum_epoch(
    request: BeginQuorumEpochRequest, ctx: Context
) -> MaybePromise[BeginQuorumEpochResponse]:
    """Follow the leader.

    v1 directory ids and the leader's endpoints
    """
    check_cluster(request.cluster_id, ctx)
    asked = sole_partition(request.topics)
    topic = request.topics[0].topic_name
    quorum = ctx.broker.quorum
    reply = quorum.core.epoch_begun(
        BeginEpoch(
            asked.leader_epoch,
            asked.leader_id,
            ReplicaKey(request.voter_id, asked.voter_directory_id),
            tuple(Endpoint(each.name, each.host, each.port) for each in request.leader_endpoints),
        ),
        ctx.broker.clock.monotonic_ms(),
    )

    def respond(reply: Reply) -> BeginQuorumEpochResponse:
        partition = AnsweredPartitionData(0, reply.error.code, reply.leader_id, reply.epoch)
        return BeginQuorumEpochResponse(
            topics=[AnsweredTopicData(topic, [partition])],
            node_endpoints=node_endpoints(NodeEndpoint, reply, ctx.listener),
        )

    return chain(quorum.answer(reply), respond)
