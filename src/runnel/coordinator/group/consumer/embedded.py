"""The embedded consumer protocol of classic members in consumer groups, where the coordinator decodes it.

It uses topic names where the coordinator has ids. Unknown names are ignored.
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
    """Decode the subscription of a classic member. INCONSISTENT_GROUP_PROTOCOL if it is malformed."""
    try:
        return read_subscription(metadata)
    except MalformedMessage as bad:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"malformed subscription: {bad}") from bad


def owned_in(subscription: ConsumerProtocolSubscription, cluster: Cluster) -> Partitions:
    """The owned partitions of a classic member; none with the eager rebalance protocol."""
    return _partitions(subscription.owned_partitions, cluster)


def partitions_in(assignment: bytes, cluster: Cluster) -> Partitions:
    """Decode an assignment by a classic group leader."""
    if not assignment:
        return NO_PARTITIONS
    try:
        return _partitions(read_assignment(assignment).assigned_partitions, cluster)
    except MalformedMessage as bad:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"malformed assignment: {bad}") from bad


def assignment_for(metadata: bytes, partitions: Iterable[TopicIdPartition], cluster: Cluster) -> bytes:
    """Encode the assignment of a classic member in the protocol version of its subscription."""
    topics = [
        TopicPartition(name, numbers)
        for topic_id, numbers in by_topic(partitions).items()
        if (name := cluster.name_of(topic_id)) is not None
    ]
    requested = _VERSION.unpack_from(metadata)[0] if len(metadata) >= _VERSION.size else 0
    version = max(0, min(requested, ConsumerProtocolAssignment.versions[-1]))
    return encode_consumer_protocol(ConsumerProtocolAssignment(topics), version)


def _partitions(topics: Sequence[TopicPartition], cluster: Cluster) -> Partitions:
    known = [(cluster.topic(owned.topic), owned.partitions) for owned in topics]
    return frozenset(
        TopicIdPartition(topic.id, number)
        for topic, numbers in known
        if topic is not None
        for number in numbers
    )
