"""The interface of server-side assignors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from runnel.coordinator.group.consumer.cluster import Partitions, TopicIdPartition, TopicMetadata


@dataclass(slots=True)
class Subscriber:
    """A member as input of an assignor."""

    id: str
    instance_id: str | None
    rack: str | None
    topics: frozenset[bytes]
    """Ids of the subscribed topics that exist."""
    assigned: Partitions
    """Its previous target assignment, which may contain deleted or unsubscribed partitions."""


@dataclass(slots=True)
class GroupSpec:
    """The input of an assignor."""

    subscribers: list[Subscriber]
    """In a stable order."""
    topics: Mapping[bytes, TopicMetadata]

    @property
    def is_uniform(self) -> bool:
        """Whether all members have the same subscription."""
        return len({subscriber.topics for subscriber in self.subscribers}) <= 1

    def subscribed(self) -> list[TopicIdPartition]:
        """All partitions of subscribed topics, in order."""
        topic_ids = set[bytes]().union(*(subscriber.topics for subscriber in self.subscribers))
        in_order = sorted((self.topics[topic_id] for topic_id in topic_ids), key=lambda topic: topic.name)
        return [
            TopicIdPartition(topic.id, index) for topic in in_order for index in range(topic.partition_count)
        ]

    def is_same_rack(self, subscriber: Subscriber, partition: TopicIdPartition) -> bool:
        """Whether a replica of the partition is in the member's rack."""
        racks = self.topics[partition.topic_id].racks[partition.number]
        return subscriber.rack is not None and subscriber.rack in racks


Assignor = Callable[[GroupSpec], dict[str, Partitions]]
"""Assigns every subscribed partition to exactly one subscribed member."""
