"""Administration of the cluster itself: its quorum, its brokers, and where partitions are stored."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from runnel.client.admin import Admin
from runnel.client.cluster import Cluster
from runnel.client.errors import check
from runnel.messages import describe_quorum as quorum
from runnel.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from runnel.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from runnel.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from runnel.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from runnel.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from runnel.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from runnel.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from runnel.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from runnel.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from runnel.model.configs import AlterOperation, ResourceType
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition

METADATA_TOPIC = "__cluster_metadata"
MIN_IN_SYNC = "min.insync.replicas"
PREFERRED, UNCLEAN = 0, 1
ANY_REPLICA = -2
"""The replica id of a tool: a broker answers for replicas that it does not lead."""
LATEST_OFFSET = -1
REASSIGNED_MAX = 500
"""Partitions of one request."""

LEADER_RATE, FOLLOWER_RATE = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"


Move = tuple[Sequence[int], Sequence[int]]
"""The replicas of a partition before and after a reassignment."""


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A voter or observer of the metadata quorum."""

    node_id: int
    directory_id: bytes
    end_offset: int
    lag: int
    """Records that it does not have."""
    caught_up_ms: int
    """When it last had all records; -1 if never."""


@dataclass(frozen=True, slots=True)
class QuorumView:
    """The metadata quorum."""

    leader_id: int
    epoch: int
    high_watermark: int
    voters: list[QuorumReplica]
    observers: list[QuorumReplica]
    endpoints: dict[int, tuple[str, int]]
    """The addresses of the voters, if the cluster reports them."""


@dataclass(frozen=True, slots=True)
class BrokerView:
    """A registered broker."""

    node_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


class ClusterAdmin:
    """Operations on the cluster as a whole."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def describe(self) -> tuple[str, list[BrokerView]]:
        """The cluster id and all registered brokers, by id."""
        request = DescribeClusterRequest(include_fenced_brokers=True)
        response = await self._cluster.retry(
            lambda: self._cluster.send_to_any(request, DescribeClusterResponse)
        )
        check(response.error_code, "describing the cluster", response.error_message)
        brokers = [
            BrokerView(each.broker_id, each.host, each.port, each.rack, each.is_fenced)
            for each in response.brokers
        ]
        return response.cluster_id, sorted(brokers, key=lambda each: each.node_id)

    async def quorum(self) -> QuorumView:
        """The leader, the voters and the observers of the quorum."""

        async def attempt() -> quorum.DescribeQuorumResponse:
            topics = [quorum.TopicData(METADATA_TOPIC, [quorum.PartitionData(0)])]
            request = quorum.DescribeQuorumRequest(topics=topics)
            response = await self._cluster.send_to_any(request, quorum.DescribeQuorumResponse)
            check(response.error_code, "describing the quorum", response.error_message)
            partition = response.topics[0].partitions[0]
            check(partition.error_code, "describing the quorum", partition.error_message)
            return response

        response = await self._cluster.retry(attempt)
        partition = response.topics[0].partitions[0]
        ends = [
            each.log_end_offset for each in partition.current_voters if each.replica_id == partition.leader_id
        ]
        end = max([partition.high_watermark, *ends])
        return QuorumView(
            partition.leader_id,
            partition.leader_epoch,
            partition.high_watermark,
            [_replica(each, end) for each in partition.current_voters],
            [_replica(each, end) for each in partition.observers],
            {
                node.node_id: (node.listeners[0].host, node.listeners[0].port)
                for node in response.nodes
                if node.listeners
            },
        )

    async def assignments(self) -> dict[TopicPartition, list[int]]:
        """The replicas of all partitions, internal topics included; of a reassignment those at its end."""
        moving = await self.reassignments()
        found = {}
        for topic in await self._cluster.topics():
            for view in topic.partitions:
                partition = TopicPartition(topic.name, view.partition)
                found[partition] = moving.get(partition, view.replicas)
        return found

    async def reassignments(self) -> dict[TopicPartition, list[int]]:
        """The partitions that are being reassigned, with the replicas that they will have."""
        request = ListPartitionReassignmentsRequest()
        response = await self._cluster.retry(
            lambda: self._cluster.send_to_controller(request, ListPartitionReassignmentsResponse)
        )
        check(response.error_code, "listing the reassignments", response.error_message)
        return {
            TopicPartition(topic.name, each.partition_index): [
                node for node in each.replicas if node not in each.removing_replicas
            ]
            for topic in response.topics
            for each in topic.partitions
        }

    async def min_in_sync(self, topics: Iterable[str]) -> dict[str, int]:
        """min.insync.replicas of topics."""
        found: dict[str, int] = {}
        names = sorted(topics)
        for start in range(0, len(names), REASSIGNED_MAX):
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(ResourceType.TOPIC, name, [MIN_IN_SYNC])
                    for name in names[start : start + REASSIGNED_MAX]
                ]
            )
            response = await self._cluster.send_to_any(request, DescribeConfigsResponse)
            for result in response.results:
                check(result.error_code, f"describing topic {result.resource_name}", result.error_message)
                found[result.resource_name] = int(result.configs[0].value or 1)
        return found

    async def end_offsets(self, node: int, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The end offsets of a broker's replicas, whether it leads them or not; those that are known."""
        topics = [
            ListOffsetsTopic(
                name, [ListOffsetsPartition(each.partition, timestamp=LATEST_OFFSET) for each in group]
            )
            for name, group in groupby(sorted(partitions), key=lambda each: each.topic)
        ]
        request = ListOffsetsRequest(ANY_REPLICA, topics=topics)
        response = await self._cluster.send_to_node(node, request, ListOffsetsResponse)
        return {
            TopicPartition(topic.name, each.partition_index): each.offset
            for topic in response.topics
            for each in topic.partitions
            if each.error_code == 0
        }

    async def elect_unclean(self, partition: TopicPartition) -> None:
        """Let the first live replica lead, although it may not have all committed records."""
        topics = [TopicPartitions(partition.topic, [partition.partition])]
        request = ElectLeadersRequest(election_type=UNCLEAN, topic_partitions=topics)
        response = await self._cluster.send_to_controller(request, ElectLeadersResponse)
        check(response.error_code, f"electing a leader of {partition}")
        for topic in response.replica_election_results:
            for each in topic.partition_result:
                check(each.error_code, f"electing a leader of {partition}", each.error_message)

    async def reassign(self, wanted: Mapping[TopicPartition, Sequence[int] | None]) -> None:
        """Give partitions other replicas; None cancels a reassignment."""
        ordered = sorted(wanted)
        for start in range(0, len(ordered), REASSIGNED_MAX):
            await self._reassign({each: wanted[each] for each in ordered[start : start + REASSIGNED_MAX]})

    async def _reassign(self, wanted: Mapping[TopicPartition, Sequence[int] | None]) -> None:
        topics = [
            ReassignableTopic(
                name,
                [
                    ReassignablePartition(each.partition, None if (to := wanted[each]) is None else list(to))
                    for each in partitions
                ],
            )
            for name, partitions in groupby(wanted, key=lambda each: each.topic)
        ]
        request = AlterPartitionReassignmentsRequest(topics=topics)
        response = await self._cluster.send_to_controller(request, AlterPartitionReassignmentsResponse)
        check(response.error_code, "reassigning partitions", response.error_message)
        for topic in response.responses:
            for each in topic.partitions:
                check(each.error_code, f"reassigning {topic.name}-{each.partition_index}", each.error_message)

    async def elect_preferred(self, partitions: Iterable[TopicPartition]) -> None:
        """Let the preferred replicas lead; partitions whose preferred replica cannot are left as they are."""
        topics = [
            TopicPartitions(name, [each.partition for each in group])
            for name, group in groupby(sorted(partitions), key=lambda each: each.topic)
        ]
        if topics:
            request = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=topics)
            response = await self._cluster.send_to_controller(request, ElectLeadersResponse)
            check(response.error_code, "electing leaders")

    async def throttle(
        self, moves: Mapping[TopicPartition, tuple[Sequence[int], Sequence[int]]], rate: int
    ) -> None:
        """Limit the bytes per second that each broker sends and receives for (old, new) replicas."""
        admin = Admin(self._cluster)
        nodes = {node for old, new in moves.values() for node in (*old, *new)}
        for node in sorted(nodes & set(self._cluster.nodes)):
            rates = [(name, AlterOperation.SET, str(rate)) for name in (LEADER_RATE, FOLLOWER_RATE)]
            await admin.alter_settings(ResourceType.BROKER, str(node), rates)
        for topic, group in groupby(sorted(moves), key=lambda each: each.topic):
            leaders, followers = [], []
            for each in group:
                old, new = moves[each]
                leaders += [f"{each.partition}:{node}" for node in old]
                followers += [f"{each.partition}:{node}" for node in new if node not in old]
            replicas = [(LEADER_REPLICAS, AlterOperation.SET, ",".join(leaders))]
            replicas += [(FOLLOWER_REPLICAS, AlterOperation.SET, ",".join(followers))]
            await admin.alter_settings(ResourceType.TOPIC, topic, replicas)

    async def remove_throttle(self, topics: Iterable[str]) -> None:
        """Remove the limits of a reassignment."""
        admin = Admin(self._cluster)
        await self._cluster.refresh([])
        for node in sorted(self._cluster.nodes):
            rates = [(name, AlterOperation.DELETE, None) for name in (LEADER_RATE, FOLLOWER_RATE)]
            await admin.alter_settings(ResourceType.BROKER, str(node), rates)
        for topic in sorted(set(topics)):
            replicas = [(name, AlterOperation.DELETE, None) for name in (LEADER_REPLICAS, FOLLOWER_REPLICAS)]
            await admin.alter_settings(ResourceType.TOPIC, topic, replicas)

    async def add_voter(
        self, node_id: int, directory_id: bytes, listeners: Iterable[tuple[str, str, int]], timeout_ms: int
    ) -> None:
        """Add a controller to the voters; it must have caught up as an observer."""
        request = AddRaftVoterRequest(
            cluster_id=self._cluster.cluster_id,
            timeout_ms=timeout_ms,
            voter_id=node_id,
            voter_directory_id=directory_id,
            listeners=[Listener(*each) for each in listeners],
        )
        response = await self._cluster.send_to_controller(request, AddRaftVoterResponse)
        check(response.error_code, f"adding the voter {node_id}", response.error_message)

    async def remove_voter(self, node_id: int, directory_id: bytes) -> None:
        """Remove a controller from the voters."""
        request = RemoveRaftVoterRequest(
            cluster_id=self._cluster.cluster_id, voter_id=node_id, voter_directory_id=directory_id
        )
        response = await self._cluster.send_to_controller(request, RemoveRaftVoterResponse)
        check(response.error_code, f"removing the voter {node_id}", response.error_message)

    async def unregister(self, node_id: int) -> None:
        """Remove the registration of a broker that will not return."""
        request = UnregisterBrokerRequest(broker_id=node_id)
        response = await self._cluster.send_to_controller(request, UnregisterBrokerResponse)
        if response.error_code != ErrorCode.BROKER_ID_NOT_REGISTERED.code:
            check(response.error_code, f"unregistering broker {node_id}", response.error_message)


def _replica(state: quorum.ReplicaState, end_offset: int) -> QuorumReplica:
    lag = end_offset - state.log_end_offset if state.log_end_offset >= 0 else end_offset
    return QuorumReplica(
        state.replica_id,
        bytes(state.replica_directory_id),
        state.log_end_offset,
        max(lag, 0),
        state.last_caught_up_timestamp,
    )
