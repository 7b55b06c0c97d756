"""Administration of consumer groups: members, offsets and deletion."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from runnel.client.cluster import Cluster
from runnel.client.consumer_protocol import assigned_partitions
from runnel.client.errors import BrokerError, UnsupportedVersion, check
from runnel.messages import consumer_group_describe
from runnel.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    Member,
)
from runnel.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from runnel.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from runnel.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from runnel.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from runnel.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from runnel.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition

NO_GENERATION = -1
CLASSIC = "classic"
CONSUMER = "consumer"
MEMBER_KINDS = {0: CLASSIC, 1: CONSUMER}


@dataclass(slots=True)
class GroupListing:
    """A listed group."""

    group_id: str
    state: str
    kind: str
    protocol_type: str
    coordinator: int


@dataclass(slots=True)
class GroupMember:
    """A member of a group and its assignment."""

    member_id: str
    client_id: str
    client_host: str
    instance_id: str | None
    partitions: list[TopicPartition]
    target: list[TopicPartition]
    """The target assignment; differs from `partitions` while a consumer group is reconciling."""
    kind: str = CLASSIC
    epoch: int | None = None
    """The member epoch, in the consumer protocol."""
    rack: str | None = None


@dataclass(slots=True)
class GroupView:
    """A described group."""

    group_id: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: int
    members: list[GroupMember] = field(default_factory=list)
    kind: str = CLASSIC
    epoch: int | None = None
    """The group epoch, in the consumer protocol."""
    target_epoch: int | None = None
    """The assignment epoch."""


@dataclass(slots=True)
class Commit:
    """A committed offset."""

    offset: int
    metadata: str = ""


class Groups:
    """Administers the consumer groups of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def list(self) -> list[GroupListing]:
        """All groups, sorted by id."""
        await self._cluster.retry(lambda: self._cluster.refresh([]))

        async def attempt(node_id: int) -> ListGroupsResponse:
            response = await self._cluster.send_to_node(node_id, ListGroupsRequest(), ListGroupsResponse)
            check(response.error_code, f"listing the groups of broker {node_id}")
            return response

        nodes = list(self._cluster.nodes)
        responses = await asyncio.gather(
            *(self._cluster.retry(partial(attempt, node_id)) for node_id in nodes)
        )
        listings = [
            GroupListing(group.group_id, group.group_state, group.group_type, group.protocol_type, node_id)
            for node_id, response in zip(nodes, responses, strict=True)
            for group in response.groups
        ]
        return sorted(listings, key=lambda listing: listing.group_id)

    async def describe(self, group_id: str) -> GroupView:
        """Describe a group; BrokerError with GROUP_ID_NOT_FOUND if it does not exist."""
        try:
            return await self._describe_consumer(group_id)
        except (UnsupportedVersion, BrokerError) as error:
            if isinstance(error, BrokerError) and error.error not in _NOT_A_CONSUMER_GROUP:
                raise
        return await self._describe_classic(group_id)

    async def _describe_consumer(self, group_id: str) -> GroupView:
        async def attempt() -> consumer_group_describe.DescribedGroup:
            request = ConsumerGroupDescribeRequest(group_ids=[group_id])
            response = await self._cluster.send_to_coordinator(
                group_id, request, ConsumerGroupDescribeResponse
            )
            check(response.groups[0].error_code, f"group {group_id}", response.groups[0].error_message)
            return response.groups[0]

        group = await self._cluster.retry(attempt, lambda: self._cluster.invalidate_coordinator(group_id))
        return GroupView(
            group.group_id,
            group.group_state,
            CONSUMER,
            group.assignor_name,
            await self._cluster.coordinator(group_id),
            [_consumer_member(member) for member in sorted(group.members, key=lambda one: one.member_id)],
            CONSUMER,
            group.group_epoch,
            group.assignment_epoch,
        )

    async def _describe_classic(self, group_id: str) -> GroupView:
        async def attempt() -> DescribedGroup:
            request = DescribeGroupsRequest(groups=[group_id])
            response = await self._cluster.send_to_coordinator(group_id, request, DescribeGroupsResponse)
            check(response.groups[0].error_code, f"group {group_id}", response.groups[0].error_message)
            return response.groups[0]

        group = await self._cluster.retry(attempt, lambda: self._cluster.invalidate_coordinator(group_id))
        if group.group_state == "Dead":
            # Brokers before KIP-1043 return Dead for groups that do not exist.
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id}")
        is_consumer = group.protocol_type == "consumer"
        members = [
            _classic_member(member, assigned_partitions(member.member_assignment) if is_consumer else [])
            for member in sorted(group.members, key=lambda member: member.member_id)
        ]
        return GroupView(
            group.group_id,
            group.group_state,
            group.protocol_type,
            group.protocol_data,
            await self._cluster.coordinator(group_id),
            members,
        )

    async def committed(self, group_id: str) -> dict[TopicPartition, Commit]:
        """All committed offsets of a group."""

        async def attempt() -> dict[TopicPartition, Commit]:
            request = OffsetFetchRequest(
                group_id=group_id,
                topics=None,
                groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)],
            )
            response = await self._cluster.send_to_coordinator(group_id, request, OffsetFetchResponse)
            return _commits(group_id, response)

        return await self._cluster.retry(attempt, lambda: self._cluster.invalidate_coordinator(group_id))

    async def stable_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Commit]:
        """The committed offsets of these partitions, once no transactional commit is pending.

        Partitions are requested by name, because a request of all omits those with only a pending commit.
        """
        numbers: dict[str, list[int]] = {}
        for partition in partitions:
            numbers.setdefault(partition.topic, []).append(partition.partition)
        topics = [
            OffsetFetchRequestTopics(name=name, partition_indexes=these) for name, these in numbers.items()
        ]
        request = OffsetFetchRequest(
            group_id=group_id,
            topics=[OffsetFetchRequestTopic(name, these) for name, these in numbers.items()],
            groups=[OffsetFetchRequestGroup(group_id=group_id, topics=topics)],
            require_stable=True,
        )

        async def attempt() -> dict[TopicPartition, Commit]:
            response = await self._cluster.send_to_coordinator(group_id, request, OffsetFetchResponse)
            return _commits(group_id, response)

        return await self._cluster.retry(attempt, lambda: self._cluster.invalidate_coordinator(group_id))

    async def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Reset the offsets of a group without members."""

        async def attempt() -> None:
            request = commit_request(group_id, offsets)
            response = await self._cluster.send_to_coordinator(group_id, request, OffsetCommitResponse)
            check_committed(group_id, response)

        await self._cluster.retry(attempt, lambda: self._cluster.invalidate_coordinator(group_id))

    async def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete the committed offsets of partitions."""
        topics: dict[str, OffsetDeleteRequestTopic] = {}
        for partition in partitions:
            topic = topics.setdefault(partition.topic, OffsetDeleteRequestTopic(name=partition.topic))
            topic.partitions.append(OffsetDeleteRequestPartition(partition_index=partition.partition))
        request = OffsetDeleteRequest(group_id=group_id, topics=list(topics.values()))

        async def attempt() -> OffsetDeleteResponse:
            response = await self._cluster.send_to_coordinator(group_id, request, OffsetDeleteResponse)
            check(response.error_code, f"deleting offsets of group {group_id}")
            return response

        response = await self._cluster.retry(attempt, lambda: self._cluster.invalidate_coordinator(group_id))
        for result in response.topics:
            for view in result.partitions:
                partition = TopicPartition(result.name, view.partition_index)
                check(view.error_code, f"deleting the offset of group {group_id} for {partition}")

    async def delete(self, group_id: str) -> None:
        """Delete a group without members, and its offsets."""

        async def attempt() -> None:
            request = DeleteGroupsRequest(groups_names=[group_id])
            response = await self._cluster.send_to_coordinator(group_id, request, DeleteGroupsResponse)
            check(response.results[0].error_code, f"deleting group {group_id}")

        await self._cluster.retry(attempt, lambda: self._cluster.invalidate_coordinator(group_id))


_NOT_A_CONSUMER_GROUP = {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION}


def _classic_member(member: DescribedGroupMember, partitions: list[TopicPartition]) -> GroupMember:
    return GroupMember(
        member.member_id,
        member.client_id,
        member.client_host.removeprefix("/"),
        member.group_instance_id,
        partitions,
        partitions,
    )


def _consumer_member(member: Member) -> GroupMember:
    return GroupMember(
        member.member_id,
        member.client_id,
        member.client_host.removeprefix("/"),
        member.instance_id,
        _partitions(member.assignment),
        _partitions(member.target_assignment),
        # Version 0 has no member type; members are assumed to use the consumer protocol.
        MEMBER_KINDS.get(member.member_type, CONSUMER),
        member.member_epoch,
        member.rack_id,
    )


def _partitions(assignment: Assignment) -> list[TopicPartition]:
    return sorted(
        TopicPartition(topic.topic_name, number)
        for topic in assignment.topic_partitions
        for number in topic.partitions
    )


def commit_request(
    group_id: str,
    offsets: Mapping[TopicPartition, int],
    *,
    generation_id: int = NO_GENERATION,
    member_id: str = "",
    instance_id: str | None = None,
) -> OffsetCommitRequest:
    """An OffsetCommit request of a member or of an admin client."""
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for partition, offset in offsets.items():
        topic = topics.setdefault(partition.topic, OffsetCommitRequestTopic(name=partition.topic))
        topic.partitions.append(
            OffsetCommitRequestPartition(
                partition_index=partition.partition, committed_offset=offset, committed_metadata=""
            )
        )
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation_id,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=list(topics.values()),
    )


def check_committed(group_id: str, response: OffsetCommitResponse) -> None:
    """Raise BrokerError for the first partition whose commit failed."""
    for topic in response.topics:
        for view in topic.partitions:
            partition = TopicPartition(topic.name, view.partition_index)
            check(view.error_code, f"committing the offset of group {group_id} for {partition}")


def _commits(group_id: str, response: OffsetFetchResponse) -> dict[TopicPartition, Commit]:
    about = f"fetching the offsets of group {group_id}"
    # Up to version 7 the response has one group at the top level.
    group = response.groups[0] if response.groups else response
    check(group.error_code, about)
    commits: dict[TopicPartition, Commit] = {}
    for topic in group.topics:
        for view in topic.partitions:
            check(view.error_code, about)
            if view.committed_offset >= 0:
                partition = TopicPartition(topic.name, view.partition_index)
                commits[partition] = Commit(view.committed_offset, view.metadata or "")
    return commits
