"""EndQuorumEpoch: the leader of the metadata quorum resigns."""

from runnel.broker.apis.handlers import handles
from runnel.broker.apis.quorum_requests import check_cluster, sole_partition
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.promise import MaybePromise, chain
from runnel.broker.runtime.quorum_wire import node_endpoints
from runnel.messages.end_quorum_epoch import (
    AnsweredPartitionData,
    AnsweredTopicData,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    NodeEndpoint,
)
from runnel.raft.values import EndEpoch, Endpoint, ReplicaKey, Reply


@handles(EndQuorumEpochRequest)
def end_quorum_epoch(request: EndQuorumEpochRequest, ctx: Context) -> MaybePromise[EndQuorumEpochResponse]:
    """Stand for election, now or later, according to the place among the candidates.

    v1 directory ids and the leader's endpoints
    """
    check_cluster(request.cluster_id, ctx)
    asked = sole_partition(request.topics)
    topic = request.topics[0].topic_name
    candidates = [
        ReplicaKey(each.candidate_id, each.candidate_directory_id) for each in asked.preferred_candidates
    ]
    if ctx.api_version == 0:
        candidates = [ReplicaKey(each) for each in asked.preferred_successors]
    quorum = ctx.broker.quorum
    reply = quorum.core.epoch_ended(
        EndEpoch(
            asked.leader_epoch,
            asked.leader_id,
            tuple(candidates),
            tuple(Endpoint(each.name, each.host, each.port) for each in request.leader_endpoints),
        ),
        ctx.broker.clock.monotonic_ms(),
    )

    def respond(reply: Reply) -> EndQuorumEpochResponse:
        partition = AnsweredPartitionData(0, reply.error.code, reply.leader_id, reply.epoch)
        return EndQuorumEpochResponse(
            topics=[AnsweredTopicData(topic, [partition])],
            node_endpoints=node_endpoints(NodeEndpoint, reply, ctx.listener),
        )

    return chain(quorum.answer(reply), respond)
