"""The embedded consumer protocol: subscriptions and assignments, opaque to the broker."""

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
    """Encode a subscription to topics."""
    return encode_consumer_protocol(ConsumerProtocolSubscription(topics=sorted(topics)), SUBSCRIPTION_VERSION)


def subscribed_topics(metadata: bytes | memoryview) -> list[str]:
    """The subscribed topics of a member; MalformedMessage if it does not use this protocol."""
    return read_subscription(metadata).topics


def assignment_bytes(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode the assignment of a member."""
    topics: dict[str, OwnedTopic] = {}
    for name, index in partitions:
        topics.setdefault(name, OwnedTopic(topic=name)).partitions.append(index)
    assignment = ConsumerProtocolAssignment(assigned_partitions=list(topics.values()))
    return encode_consumer_protocol(assignment, ASSIGNMENT_VERSION)


def assigned_partitions(assignment: bytes | memoryview) -> list[TopicPartition]:
    """The partitions of an assignment; none if it is empty or of another protocol."""
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
    subscriptions: Mapping[str, Iterable[str]], partition_counts: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Kafka's range assignor: a contiguous range of each subscribed topic; the first ones are longer."""
    assignment: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
    for topic, count in sorted(partition_counts.items()):
        members = sorted(member for member, topics in subscriptions.items() if topic in topics)
        if not members:
            continue
        length, extra = divmod(count, len(members))
        first = 0
        for index, member in enumerate(members):
            last = first + length + (index < extra)
            assignment[member] += [TopicPartition(topic, partition) for partition in range(first, last)]
            first = last
    return assignment
