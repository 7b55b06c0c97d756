"""ConsumerGroupDescribe."""

from collections.abc import Iterable

from runnel.coordinator.group.consumer.cluster import Cluster, TopicIdPartition
from runnel.coordinator.group.consumer.draft import preferred_assignor
from runnel.coordinator.group.consumer.group import ConsumerGroup
from runnel.coordinator.group.consumer.member import ConsumerMember
from runnel.coordinator.group.consumer.records import by_topic
from runnel.messages.consumer_group_describe import Assignment, DescribedGroup, Member, TopicPartitions

_CLASSIC, _CONSUMER = 0, 1


def describe_consumer_group(group: ConsumerGroup, cluster: Cluster, default_assignor: str) -> DescribedGroup:
    """A group with its epochs and the current and target assignments of its members."""
    return DescribedGroup(
        group_id=group.id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=preferred_assignor(group) or default_assignor,
        members=[_member(group, member, cluster) for member in group.members.values()],
    )


def _member(group: ConsumerGroup, member: ConsumerMember, cluster: Cluster) -> Member:
    return Member(
        member_id=member.id,
        instance_id=member.instance_id,
        rack_id=member.rack,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.pattern,
        # Partitions pending revocation are still owned.
        assignment=_assignment((*member.assigned, *member.revoking), cluster),
        target_assignment=_assignment(group.target_of(member.id), cluster),
        member_type=_CLASSIC if member.is_classic else _CONSUMER,
    )


def _assignment(partitions: Iterable[TopicIdPartition], cluster: Cluster) -> Assignment:
    """Partitions by topic name, without those of deleted topics."""
    return Assignment(
        [
            TopicPartitions(topic_id, name, numbers)
            for topic_id, numbers in by_topic(partitions).items()
            if (name := cluster.name_of(topic_id)) is not None
        ]
    )
