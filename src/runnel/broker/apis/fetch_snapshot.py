"""FetchSnapshot: a page of a snapshot of the metadata log."""

from runnel.broker.apis.handlers import handles
from runnel.broker.apis.quorum_requests import check_cluster, sole_partition
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.quorum_fetches import serve_snapshot
from runnel.broker.runtime.quorum_wire import node_endpoints
from runnel.messages.fetch_snapshot import (
    AnsweredPartitionSnapshot,
    AnsweredTopicSnapshot,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    SnapshotId,
)
from runnel.model import ids
from runnel.raft.values import FetchSnapshot, ReplicaKey


@handles(FetchSnapshotRequest)
async def fetch_snapshot(request: FetchSnapshotRequest, ctx: Context) -> FetchSnapshotResponse:
    """Return bytes of a snapshot from a position on.

    v1 directory id and the leader's endpoint
    """
    check_cluster(request.cluster_id, ctx)
    asked = sole_partition(request.topics)
    snapshot = ids.SnapshotId(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
    replica = ReplicaKey(request.replica_id, asked.replica_directory_id)
    fetch = FetchSnapshot(asked.current_leader_epoch, replica, snapshot, asked.position)
    bytes_max = min(request.max_bytes, ctx.broker.quorum.membership.timing.snapshot_max_bytes)
    reply = await serve_snapshot(ctx.broker, fetch, bytes_max)
    page = AnsweredPartitionSnapshot(
        0,
        reply.error.code,
        SnapshotId(*snapshot),
        LeaderIdAndEpoch(reply.leader_id, reply.epoch),
        reply.size_bytes,
        reply.position,
        reply.data,
    )
    return FetchSnapshotResponse(
        topics=[AnsweredTopicSnapshot(request.topics[0].name, [page])],
        node_endpoints=node_endpoints(NodeEndpoint, reply, ctx.listener),
    )
