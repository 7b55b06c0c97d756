"""Fetch of the metadata log by members of the quorum, on the listener of controllers."""

from runnel.broker.apis.quorum_requests import check_cluster, sole_partition
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.promise import MaybePromise, chain
from runnel.broker.runtime.quorum_fetches import QuorumFetch, Served
from runnel.broker.runtime.quorum_wire import node_endpoints
from runnel.controller.values import CLUSTER_METADATA
from runnel.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    SnapshotId,
)
from runnel.model.errors import ApiError
from runnel.model.ids import METADATA_TOPIC_ID
from runnel.raft.values import Fetch, ReplicaKey

_REPLICA_STATE_FROM = 15


def is_metadata_fetch(request: FetchRequest, ctx: Context) -> bool:
    """Is this a fetch of the metadata log by a member of the quorum?"""
    if ctx.listener not in ctx.broker.controller_listeners or not request.topics:
        return False
    topic = request.topics[0]
    return topic.topic_id == METADATA_TOPIC_ID or topic.topic == CLUSTER_METADATA


def fetch_metadata(request: FetchRequest, ctx: Context) -> MaybePromise[FetchResponse]:
    """Return records of the metadata log, committed or not; or where the follower's log diverges.

    v12 diverging epochs and snapshots · v17 directory ids and the leader's endpoint · v18 the follower's high
    watermark
    """
    try:
        check_cluster(request.cluster_id, ctx)
        asked = sole_partition(request.topics)
    except ApiError as error:
        return FetchResponse(error_code=error.code)
    replica_id = request.replica_id
    if ctx.api_version >= _REPLICA_STATE_FROM:
        replica_id = -1 if request.replica_state is None else request.replica_state.replica_id
    fetch = Fetch(
        asked.current_leader_epoch,
        ReplicaKey(replica_id, asked.replica_directory_id),
        asked.fetch_offset,
        asked.last_fetched_epoch,
        asked.high_watermark,
    )
    topic = request.topics[0]
    serving = QuorumFetch(ctx.broker, fetch, request.max_wait_ms, request.max_bytes)

    def respond(served: Served) -> FetchResponse:
        reply, found = served
        partition = PartitionData(
            0,
            reply.error.code,
            reply.high_watermark,
            reply.high_watermark,
            ctx.broker.quorum.log.log_start_offset,
            None if reply.diverging is None else EpochEndOffset(*reply.diverging),
            LeaderIdAndEpoch(reply.leader_id, reply.epoch),
            None if reply.snapshot is None else SnapshotId(*reply.snapshot),
            [],
            records=b"" if found is None else found,
        )
        return FetchResponse(
            responses=[FetchableTopicResponse(topic.topic, topic.topic_id, [partition])],
            node_endpoints=node_endpoints(NodeEndpoint, reply, ctx.listener),
        )

    return chain(serving.serve(ctx.session), respond)
