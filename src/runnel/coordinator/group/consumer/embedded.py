"""What classic consumers tell each other, where the coordinator has to understand it: in consumer groups.

They name topics where the coordinator has ids. A name that stands for no topic says nothing.
"""

from collections.abc import Iterable, Sequence
from struct import Struct

from runnel.coordinator.group.consumer.cluster import NO_PARTITIONS, Cluster, Partitions, TopicIdPartition
from runnel.coordinator.group.consumer.records import by_topic
from runnel.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    encode_consumer_protocol,
    read_assignment,
    read_subscription,
)
from runnel.model.errors import ApiError, ErrorCode
from runnel.wire import MalformedMessage

_VERSION = Struct(">h")


def subscription_in(metadata: bytes) -> ConsumerProtocolSubscription:
    """What a classic member wants. INCONSISTENT_GROUP_PROTOCOL if it does not say so in this protocol."""
    try:
        return read_subscription(metadata)
    except MalformedMessage as bad:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"malformed subscription: {bad}") from bad


def owned_in(subscription: ConsumerProtocolSubscription, cluster: Cluster) -> Partitions:
    """What a classic member says it has; nothing, if its protocol makes it give up all before it joins."""
    return _partitions(subscription.owned_partitions, cluster)


def partitions_in(assignment: bytes, cluster: Cluster) -> Partitions:
    """What a classic leader assigned."""
    if not assignment:
        return NO_PARTITIONS
    try:
        return _partitions(read_assignment(assignment).assigned_partitions, cluster)
    except MalformedMessage as bad:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"not a consumer's assignment: {bad}") from bad


def assignment_for(metadata: bytes, partitions: Iterable[TopicIdPartition], cluster: Cluster) -> bytes:
    """What a classic member gets, in the version of the protocol that it spoke itself."""
    topics = [
        TopicPartition(name, numbers)
        for topic_id, numbers in by_topic(partitions).items()
        if (name := cluster.name_of(topic_id)) is not None
    ]
    spoken = _VERSION.unpack_from(metadata)[0] if len(metadata) >= _VERSION.size else 0
    version = max(0, min(spoken, ConsumerProtocolAssignment.versions[-1]))
    return encode_consumer_protocol(ConsumerProtocolAssignment(topics), version)


def _partitions(topics: Sequence[TopicPartition], cluster: Cluster) -> Partitions:
    known = [(cluster.topic(owned.topic), owned.partitions) for owned in topics]
    return frozenset(
        TopicIdPartition(topic.id, number)
        for topic, numbers in known
        if topic is not None
        for number in numbers
    )
