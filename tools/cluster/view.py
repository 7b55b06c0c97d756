"""The state of a cluster as any broker reports it: leaders, in-sync replicas, controller, coordinators."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from runnel.client import Cluster
from runnel.client.cluster import GROUP_KEY, TRANSACTION_KEY
from runnel.client.errors import ClientError
from runnel.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    TopicData,
)
from tools.cluster.security import NO_SECURITY, OBSERVER, Security

METADATA_TOPIC = "__cluster_metadata"
REQUEST_TIMEOUT_S = 3.0

T = TypeVar("T")
Partition = tuple[str, int]


class Unreachable(Exception):
    """No node could report the state of the cluster in time."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The replicas of one partition."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: frozenset[int]

    @property
    def is_whole(self) -> bool:
        """Whether it has a leader and all its replicas are in sync."""
        return self.leader >= 0 and self.in_sync == frozenset(self.replicas)


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Brokers that are not fenced, and all partitions."""

    brokers: frozenset[int]
    partitions: dict[Partition, PartitionState]

    def unfinished(self, brokers: Iterable[int]) -> str:
        """What is missing until these brokers are alive and all replicas in sync; empty if nothing is."""
        absent = set(brokers) - self.brokers
        behind = [partition for partition, state in self.partitions.items() if not state.is_whole]
        parts = []
        if absent:
            parts.append(f"brokers {sorted(absent)} are not in the metadata")
        if behind:
            states = ", ".join(f"{name}: {self.partitions[name]}" for name in sorted(behind)[:3])
            parts.append(f"{len(behind)} partitions are not whole: {states}")
        return "; ".join(parts)


def state(bootstrap: str, security: Security = NO_SECURITY) -> ClusterState:
    return ask(bootstrap, _state, security)


def controller(bootstrap: str, security: Security = NO_SECURITY) -> tuple[int, int]:
    """The id of the active controller, and its epoch."""
    return ask(bootstrap, _controller, security)


def group_coordinator(bootstrap: str, group: str, security: Security = NO_SECURITY) -> int:
    return ask(bootstrap, lambda cluster: cluster.coordinator(group, GROUP_KEY), security)


def transaction_coordinator(bootstrap: str, transactional_id: str, security: Security = NO_SECURITY) -> int:
    return ask(bootstrap, lambda cluster: cluster.coordinator(transactional_id, TRANSACTION_KEY), security)


def ask(bootstrap: str, question: Callable[[Cluster], Awaitable[T]], security: Security = NO_SECURITY) -> T:
    """Run a question with a client of its own; raises Unreachable if nothing answers in time."""

    async def ask() -> T:
        async with Cluster(
            bootstrap,
            timeout_s=REQUEST_TIMEOUT_S,
            api_timeout_s=REQUEST_TIMEOUT_S,
            properties=security.client(OBSERVER),
        ) as cluster:
            return await question(cluster)

    try:
        return asyncio.run(ask())
    except (ClientError, OSError, TimeoutError) as error:
        raise Unreachable(str(error)) from error


async def _state(cluster: Cluster) -> ClusterState:
    topics = await cluster.topics()
    return ClusterState(
        frozenset(cluster.nodes),
        {
            (topic.name, view.partition): PartitionState(
                view.leader, view.leader_epoch, tuple(view.replicas), frozenset(view.in_sync)
            )
            for topic in topics
            for view in topic.partitions
        },
    )


async def _controller(cluster: Cluster) -> tuple[int, int]:
    request = DescribeQuorumRequest(topics=[TopicData(METADATA_TOPIC, [PartitionData(0)])])
    response = await (await cluster.any_connection()).send(request, DescribeQuorumResponse)
    if response.error_code or response.topics[0].partitions[0].error_code:
        raise Unreachable(f"DescribeQuorum was refused: {response}")
    found = response.topics[0].partitions[0]
    return found.leader_id, found.leader_epoch
