"""What consumers tell each other through their group: subscriptions and assignments, bytes to the broker."""

from collections.abc import Iterable, Mapping

from runnel.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    encode_consumer_protocol,
    read_assignment,
    read_subscription,
)
from runnel.messages.consumer_protocol import TopicPartition as OwnedTopic
from runnel.model.ids import TopicPartition
from runnel.wire import MalformedMessage

SUBSCRIPTION_VERSION = 1
ASSIGNMENT_VERSION = 1


def subscription_bytes(topics: Iterable[str]) -> bytes:
    """What a member says when it joins: the topics it wants."""
    return encode_consumer_protocol(ConsumerProtocolSubscription(topics=sorted(topics)), SUBSCRIPTION_VERSION)


def subscribed_topics(metadata: bytes | memoryview) -> list[str]:
    """The topics that a member wants; MalformedMessage if it did not speak this protocol."""
    return read_subscription(metadata).topics


def assignment_bytes(partitions: Iterable[TopicPartition]) -> bytes:
    """What the leader of a group hands to one member."""
    topics: dict[str, OwnedTopic] = {}
    for name, index in partitions:
        topics.setdefault(name, OwnedTopic(topic=name)).partitions.append(index)
    assignment = ConsumerProtocolAssignment(assigned_partitions=list(topics.values()))
    return encode_consumer_protocol(assignment, ASSIGNMENT_VERSION)


def assigned_partitions(assignment: bytes | memoryview) -> list[TopicPartition]:
    """The partitions in an assignment; none if it is empty or not of this protocol."""
    try:
        message = read_assignment(assignment)
    except MalformedMessage:
        return []
    return [
        TopicPartition(owned.topic, partition)
        for owned in message.assigned_partitions
        for partition in owned.partitions
    ]


def assign_ranges(
    wanted: Mapping[str, Iterable[str]], partition_counts: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Kafka's range assignor: every member gets one stretch of each topic it wants, early ones the longer."""
    assignment: dict[str, list[TopicPartition]] = {member: [] for member in wanted}
    for topic, count in sorted(partition_counts.items()):
        members = sorted(member for member, topics in wanted.items() if topic in topics)
        if not members:
            continue
        share, extra = divmod(count, len(members))
        first = 0
        for index, member in enumerate(members):
            last = first + share + (index < extra)
            assignment[member] += [TopicPartition(topic, partition) for partition in range(first, last)]
            first = last
    return assignment
