"""What consumers tell each other through their group: subscriptions and assignments, bytes to the broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from runnel.model.ids import TopicPartition
from runnel.wire import Data, MalformedMessage, Struct, bytes_, decode, encoded, field, int32, string

VERSION_BYTES = 2
SUBSCRIPTION_VERSION = 1
ASSIGNMENT_VERSION = 1


class OwnedTopic(Struct):
    topic: string = ""
    partitions: list[int32] = field()


class Subscription(Data, versions="0-3"):
    topics: list[string] = field()
    user_data: bytes_ | None = field(default=None)
    owned_partitions: list[OwnedTopic] = field("1+")
    generation_id: int32 = field("2+", default=-1)
    rack_id: string | None = field("3+", default=None)


class Assignment(Data, versions="0-3"):
    assigned_partitions: list[OwnedTopic] = field()
    user_data: bytes_ | None = field(default=None)


def subscription_bytes(topics: Iterable[str]) -> bytes:
    """What a member says when it joins: the topics it wants."""
    return _with_version(Subscription(topics=sorted(topics)), SUBSCRIPTION_VERSION)


def subscribed_topics(metadata: bytes | memoryview) -> list[str]:
    """The topics that a member wants; MalformedMessage if it did not speak this protocol."""
    return decode(Subscription, _version(metadata), metadata, VERSION_BYTES).topics


def assignment_bytes(partitions: Iterable[TopicPartition]) -> bytes:
    """What the leader of a group hands to one member."""
    topics: dict[str, OwnedTopic] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, OwnedTopic(topic=partition.topic)).partitions.append(
            partition.partition
        )
    return _with_version(Assignment(assigned_partitions=list(topics.values())), ASSIGNMENT_VERSION)


def assigned_partitions(assignment: bytes | memoryview) -> list[TopicPartition]:
    """The partitions in an assignment; none if it is empty or not of this protocol."""
    if len(assignment) < VERSION_BYTES:
        return []
    try:
        message = decode(Assignment, _version(assignment), assignment, VERSION_BYTES)
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


def _with_version(message: Data, version: int) -> bytes:
    return version.to_bytes(VERSION_BYTES, "big") + encoded(message, version)


def _version(data: bytes | memoryview) -> int:
    return int.from_bytes(data[:VERSION_BYTES], "big")
