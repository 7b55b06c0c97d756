"""The requests and replies of the quorum as Kafka's messages, in both directions.

Every message is about one partition, `__cluster_metadata-0`. A reply reports the epoch and leader that its
sender knows, and the address of the leader under the listener of the request.
"""

from typing import Any, TypeVar

from runnel.controller.values import CLUSTER_METADATA
from runnel.messages import (
    add_raft_voter,
    begin_quorum_epoch,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    remove_raft_voter,
    update_raft_voter,
    vote,
)
from runnel.model.errors import ErrorCode
from runnel.model.ids import METADATA_TOPIC_ID, NO_LEADER, SnapshotId
from runnel.raft.values import (
    AddVoter,
    BeginEpoch,
    EndEpoch,
    Endpoint,
    Fetch,
    FetchReply,
    FetchSnapshot,
    QuorumTiming,
    RemoveVoter,
    ReplicaKey,
    Reply,
    Request,
    SnapshotReply,
    UpdateVoter,
    Vote,
    VoteReply,
)
from runnel.wire import Request as WireRequest

FETCH_WAIT_MS = 500
"""How long the leader may delay the response to a fetch."""
PRE_VOTE_VERSION = 2
ADD_VOTER_TIMEOUT_MS = 1000
"""How long the leader may take to add this node as a voter; the request is repeated if that fails."""

Topic = TypeVar("Topic")


def encode_request(request: Request, cluster_id: str | None, timing: QuorumTiming) -> WireRequest:
    """The message of a request."""
    match request:
        case Vote():
            return _encode_vote(request, cluster_id)
        case BeginEpoch(epoch, leader_id, voter, endpoints):
            key = voter or ReplicaKey(NO_LEADER)
            begin = begin_quorum_epoch.PartitionData(0, key.directory_id, leader_id, epoch)
            return begin_quorum_epoch.BeginQuorumEpochRequest(
                cluster_id,
                key.id,
                [begin_quorum_epoch.TopicData(CLUSTER_METADATA, [begin])],
                [begin_quorum_epoch.LeaderEndpoint(*each) for each in endpoints],
            )
        case EndEpoch(epoch, leader_id, candidates, endpoints):
            infos = [end_quorum_epoch.ReplicaInfo(*each) for each in candidates]
            end = end_quorum_epoch.PartitionData(0, leader_id, epoch, [each.id for each in candidates], infos)
            return end_quorum_epoch.EndQuorumEpochRequest(
                cluster_id,
                [end_quorum_epoch.TopicData(CLUSTER_METADATA, [end])],
                [end_quorum_epoch.LeaderEndpoint(*each) for each in endpoints],
            )
        case Fetch():
            return _encode_fetch(request, cluster_id, timing)
        case FetchSnapshot(epoch, replica, snapshot, position):
            page = fetch_snapshot.PartitionSnapshot(
                0, epoch, fetch_snapshot.SnapshotId(*snapshot), position, replica.directory_id
            )
            topics = [fetch_snapshot.TopicSnapshot(CLUSTER_METADATA, [page])]
            return fetch_snapshot.FetchSnapshotRequest(
                cluster_id, replica.id, timing.snapshot_max_bytes, topics
            )
        case AddVoter(_, voter, endpoints):
            listeners = [add_raft_voter.Listener(*each) for each in endpoints]
            return add_raft_voter.AddRaftVoterRequest(
                cluster_id, ADD_VOTER_TIMEOUT_MS, voter.id, voter.directory_id, listeners, False
            )
        case RemoveVoter(_, voter):
            return remove_raft_voter.RemoveRaftVoterRequest(cluster_id, voter.id, voter.directory_id)
        case UpdateVoter(epoch, voter, endpoints, kraft_versions):
            return update_raft_voter.UpdateRaftVoterRequest(
                cluster_id,
                epoch,
                voter.id,
                voter.directory_id,
                [update_raft_voter.Listener(*each) for each in endpoints],
                update_raft_voter.KRaftVersionFeature(*kraft_versions),
            )


def _encode_vote(request: Vote, cluster_id: str | None) -> WireRequest:
    key = request.voter or ReplicaKey(NO_LEADER)
    partition = vote.PartitionData(
        0,
        request.epoch,
        request.candidate.id,
        request.candidate.directory_id,
        key.directory_id,
        request.last_epoch,
        request.end_offset,
        request.is_pre_vote,
    )
    return vote.VoteRequest(cluster_id, key.id, [vote.TopicData(CLUSTER_METADATA, [partition])])


def _encode_fetch(request: Fetch, cluster_id: str | None, timing: QuorumTiming) -> WireRequest:
    partition = fetch.FetchPartition(
        0,
        request.epoch,
        request.offset,
        request.last_epoch,
        replica_directory_id=request.replica.directory_id,
        high_watermark=request.high_watermark,
    )
    return fetch.FetchRequest(
        cluster_id,
        replica_id=request.replica.id,
        replica_state=fetch.ReplicaState(request.replica.id),
        max_wait_ms=FETCH_WAIT_MS if request.may_wait else 0,
        max_bytes=timing.fetch_max_bytes,
        topics=[fetch.FetchTopic(CLUSTER_METADATA, METADATA_TOPIC_ID, [partition])],
    )


# -- responses to own requests


class BadReply(Exception):
    """A response that has an error for the request as a whole, or is not about the metadata partition."""

    def __init__(self, error: ErrorCode) -> None:
        super().__init__(error.name)
        self.error = error


def decode_reply(request: Request, response: Any, listener: str) -> Reply:
    """The reply in a response. Raises BadReply."""
    error = ErrorCode.from_code(response.error_code)
    if isinstance(request, UpdateVoter):
        return _decode_update(request, response, listener)
    if isinstance(request, AddVoter | RemoveVoter):
        return Reply(error, request.epoch)
    if error is not ErrorCode.NONE:
        raise BadReply(error)
    topics = response.responses if isinstance(request, Fetch) else response.topics
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        raise BadReply(ErrorCode.INVALID_REQUEST)
    partition = topics[0].partitions[0]
    error = ErrorCode.from_code(partition.error_code)
    leader: Any = partition.current_leader if isinstance(request, Fetch | FetchSnapshot) else partition
    epoch, leader_id = (0, NO_LEADER) if leader is None else (leader.leader_epoch, leader.leader_id)
    endpoints = tuple(
        Endpoint(listener, each.host, each.port)
        for each in response.node_endpoints
        if each.node_id == leader_id
    )
    match request:
        case Vote():
            return VoteReply(error, epoch, leader_id, endpoints, partition.vote_granted)
        case Fetch():
            return _decode_fetch(error, epoch, leader_id, endpoints, partition)
        case FetchSnapshot():
            snapshot = SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch)
            data = memoryview(partition.unaligned_records or b"")
            return SnapshotReply(
                error, epoch, leader_id, endpoints, snapshot, partition.size, partition.position, data
            )
    return Reply(error, epoch, leader_id, endpoints)


def _decode_fetch(
    error: ErrorCode, epoch: int, leader_id: int, endpoints: tuple[Endpoint, ...], partition: Any
) -> FetchReply:
    reply = FetchReply(error, epoch, leader_id, endpoints, partition.high_watermark)
    diverging, snapshot = partition.diverging_epoch, partition.snapshot_id
    if diverging is not None and diverging.epoch >= 0:
        reply.diverging = (diverging.epoch, diverging.end_offset)
    if snapshot is not None and snapshot.end_offset >= 0:
        reply.snapshot = SnapshotId(snapshot.end_offset, snapshot.epoch)
    reply.records = memoryview(partition.records or b"")
    return reply


def _decode_update(request: UpdateVoter, response: Any, listener: str) -> Reply:
    error, leader = ErrorCode.from_code(response.error_code), response.current_leader
    if leader is None or leader.leader_epoch < 0:
        return Reply(error, request.epoch)
    endpoints = (Endpoint(listener, leader.host, leader.port),) if leader.host else ()
    return Reply(error, leader.leader_epoch, leader.leader_id, endpoints)


# -- requests of others, and their responses


def sole_partition(topics: list[Any]) -> Any:
    """The metadata partition of a request; None if the request names anything else."""
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return None
    topic = topics[0]
    name = next(
        (getattr(topic, each) for each in ("topic_name", "topic", "name") if hasattr(topic, each)), ""
    )
    is_metadata = name == CLUSTER_METADATA or getattr(topic, "topic_id", None) == METADATA_TOPIC_ID
    partition = topic.partitions[0]
    index = getattr(partition, "partition_index", getattr(partition, "partition", -1))
    return partition if is_metadata and index == 0 else None


def endpoint_under(reply: Reply, listener: str) -> Endpoint | None:
    """The leader's address under this listener name, or its only one."""
    for endpoint in reply.endpoints:
        if endpoint.name == listener:
            return endpoint
    return reply.endpoints[0] if reply.endpoints else None


def node_endpoints(kind: type[Topic], reply: Reply, listener: str) -> list[Topic]:
    """The leader's address as a list of this message's struct."""
    endpoint = endpoint_under(reply, listener)
    if endpoint is None or reply.leader_id == NO_LEADER:
        return []
    make: Any = kind
    return [make(node_id=reply.leader_id, host=endpoint.host, port=endpoint.port)]
