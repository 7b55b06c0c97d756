"""Requests of nodes to controllers, and of clients that controllers serve in another way than brokers."""

from runnel.messages import (
    allocate_producer_ids,
    alter_partition,
    assign_replicas_to_dirs,
    begin_quorum_epoch,
    broker_heartbeat,
    broker_registration,
    controller_registration,
    describe_cluster,
    end_quorum_epoch,
    envelope,
    fetch,
    fetch_snapshot,
    update_raft_voter,
    vote,
)
from runnel.messages.describe_acls import DescribeAclsRequest
from runnel.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from runnel.messages.registry import api
from runnel.model.ids import NO_ID
from runnel.security.acl import Operation
from runnel.wire import Request
from tools.differential.admin import BROKER, TOPIC
from tools.differential.authorization.data import topic_id
from tools.differential.authorization.probe import (
    HERE,
    TOPICS,
    Probe,
    on_cluster,
    on_topics,
    same,
)
from tools.differential.comparison import Broker

O = Operation  # noqa: E741 - shorter lines
METADATA = "__cluster_metadata"
METADATA_ID = bytes(15) + b"\x01"
UNKNOWN_ID = 77
"""The id of no node."""


def requests_of_nodes() -> list[Probe]:
    """All of them; none is sent by a user who may: a node would be added, or an election begin."""
    action = (on_cluster(O.CLUSTER_ACTION),)
    probes = [
        Probe(request.api_key, api(request.api_key).name, same(request), action) for request in _fixed()
    ]
    probes += [
        Probe(1, "Fetch", _fetch, action),
        Probe(56, "AlterPartition", _alter_partition, action),
        Probe(73, "AssignReplicasToDirs", _assign, action),
        Probe(
            29,
            "DescribeAcls",
            same(DescribeAclsRequest(2, None, 1, "User:unknown", None, O.ANY, 1)),
            (on_cluster(O.DESCRIBE),),
        ),
        Probe(
            32, "DescribeConfigs", _configs, (on_topics(O.DESCRIBE_CONFIGS), on_cluster(O.DESCRIBE_CONFIGS))
        ),
        Probe(60, "DescribeCluster", _cluster, (on_cluster(O.ALTER),), range(1, 3)),
    ]
    for probe in probes:
        probe.has_all = False
    return probes


def _fixed() -> list[Request]:
    voting = vote.TopicData(METADATA, [vote.PartitionData(0, 1, UNKNOWN_ID)])
    beginning = begin_quorum_epoch.TopicData(METADATA, [begin_quorum_epoch.PartitionData(0)])
    ending = end_quorum_epoch.TopicData(METADATA, [end_quorum_epoch.PartitionData(0)])
    snapshot = fetch_snapshot.TopicSnapshot(METADATA, [fetch_snapshot.PartitionSnapshot(0)])
    return [
        vote.VoteRequest(topics=[voting]),
        begin_quorum_epoch.BeginQuorumEpochRequest(topics=[beginning]),
        end_quorum_epoch.EndQuorumEpochRequest(topics=[ending]),
        envelope.EnvelopeRequest(b"request", b"principal", b"\x7f\0\0\1"),
        fetch_snapshot.FetchSnapshotRequest(topics=[snapshot]),
        broker_registration.BrokerRegistrationRequest(UNKNOWN_ID, "another"),
        broker_heartbeat.BrokerHeartbeatRequest(UNKNOWN_ID),
        allocate_producer_ids.AllocateProducerIdsRequest(UNKNOWN_ID),
        controller_registration.ControllerRegistrationRequest(UNKNOWN_ID),
        update_raft_voter.UpdateRaftVoterRequest(voter_id=UNKNOWN_ID),
    ]


def _fetch(broker: Broker, version: int) -> fetch.FetchRequest:
    parts = [fetch.FetchPartition(0, fetch_offset=0, partition_max_bytes=1000)]
    topic = fetch.FetchTopic(METADATA, NO_ID, parts)
    if version >= 13:
        topic = fetch.FetchTopic("", METADATA_ID, parts)
    request = fetch.FetchRequest(min_bytes=0, max_bytes=1000, session_epoch=-1, topics=[topic])
    request.replica_id, request.replica_state = UNKNOWN_ID, fetch.ReplicaState(UNKNOWN_ID)
    return request


def _alter_partition(broker: Broker, version: int) -> alter_partition.AlterPartitionRequest:
    parts = [alter_partition.PartitionData(0)]
    topics = [alter_partition.TopicData(topic_id(broker, name), parts) for name in TOPICS]
    return alter_partition.AlterPartitionRequest(UNKNOWN_ID, 0, topics)


def _assign(broker: Broker, version: int) -> assign_replicas_to_dirs.AssignReplicasToDirsRequest:
    parts = [assign_replicas_to_dirs.PartitionData(0)]
    topics = [assign_replicas_to_dirs.TopicData(topic_id(broker, HERE), parts)]
    directory = assign_replicas_to_dirs.DirectoryData(b"\x07" * 16, topics)
    return assign_replicas_to_dirs.AssignReplicasToDirsRequest(UNKNOWN_ID, 0, [directory])


def _configs(broker: Broker, version: int) -> DescribeConfigsRequest:
    named = [*((TOPIC, name) for name in TOPICS), (BROKER, "1")]
    return DescribeConfigsRequest([DescribeConfigsResource(*each, ["nothing"]) for each in named])


def _cluster(broker: Broker, version: int) -> describe_cluster.DescribeClusterRequest:
    return describe_cluster.DescribeClusterRequest(True, 2)
