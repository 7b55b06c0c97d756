"""Changes of a cluster that its operator makes: move replicas, remove brokers."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import islice

from runnel.client import Cluster
from runnel.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from runnel.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from runnel.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from tools.cluster.view import ClusterState, Partition, Unreachable, ask

Assignment = Mapping[Partition, list[int]]


def spread(state: ClusterState, brokers: Iterable[int]) -> dict[Partition, list[int]]:
    """An assignment of all partitions to these brokers, each with as many replicas as it has."""
    chosen = sorted(brokers)
    assignment = {}
    for number, (partition, found) in enumerate(sorted(state.partitions.items())):
        first = number % len(chosen)
        ring = chosen[first:] + chosen[:first]
        assignment[partition] = list(islice(ring, len(found.replicas)))
    return assignment


def reassign(bootstrap: str, assignment: Assignment) -> None:
    """Begin to move replicas."""
    topics: dict[str, list[ReassignablePartition]] = defaultdict(list)
    for (topic, partition), replicas in assignment.items():
        topics[topic].append(ReassignablePartition(partition, replicas))
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name, partitions) for name, partitions in topics.items()]
    )

    async def send(cluster: Cluster) -> AlterPartitionReassignmentsResponse:
        return await (await cluster.any_connection()).send(request, AlterPartitionReassignmentsResponse)

    response = ask(bootstrap, send)
    codes = {partition.error_code for topic in response.responses for partition in topic.partitions}
    if response.error_code or codes != {0}:
        raise Unreachable(f"the reassignment was refused: {response}")


def moving(bootstrap: str) -> int:
    """The number of partitions whose replicas are being moved."""

    async def send(cluster: Cluster) -> ListPartitionReassignmentsResponse:
        request = ListPartitionReassignmentsRequest()
        return await (await cluster.any_connection()).send(request, ListPartitionReassignmentsResponse)

    response = ask(bootstrap, send)
    if response.error_code:
        raise Unreachable(f"reassignments could not be listed: {response}")
    return sum(len(topic.partitions) for topic in response.topics)


def unregister(bootstrap: str, broker: int) -> None:
    """Remove a broker that was stopped."""

    async def send(cluster: Cluster) -> UnregisterBrokerResponse:
        request = UnregisterBrokerRequest(broker)
        return await (await cluster.any_connection()).send(request, UnregisterBrokerResponse)

    response = ask(bootstrap, send)
    if response.error_code:
        raise Unreachable(f"broker {broker} could not be removed: {response}")
