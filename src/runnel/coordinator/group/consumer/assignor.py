"""What an assignor is asked, and which ones there are."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from runnel.coordinator.group.consumer.cluster import Partitions, TopicIdPartition, TopicMetadata


@dataclass(slots=True)
class Subscriber:
    """A member as assignors see it."""

    id: str
    instance_id: str | None
    rack: str | None
    topics: frozenset[bytes]
    """Ids of topics that exist."""
    has: Partitions
    """What it was to have by the last target; not all of it need exist any more, or be wanted."""


@dataclass(slots=True)
class GroupSpec:
    """All that an assignment depends on."""

    subscribers: list[Subscriber]
    """In an order that does not change by itself."""
    topics: Mapping[bytes, TopicMetadata]

    @property
    def is_uniform(self) -> bool:
        """Do all want the same topics?"""
        return len({subscriber.topics for subscriber in self.subscribers}) <= 1

    def subscribed(self) -> list[TopicIdPartition]:
        """Every partition that somebody wants, in order."""
        topic_ids = set[bytes]().union(*(subscriber.topics for subscriber in self.subscribers))
        in_order = sorted((self.topics[topic_id] for topic_id in topic_ids), key=lambda topic: topic.name)
        return [
            TopicIdPartition(topic.id, index) for topic in in_order for index in range(topic.partition_count)
        ]

    def is_same_rack(self, subscriber: Subscriber, partition: TopicIdPartition) -> bool:
        """Is there a copy of the partition in the member's rack?"""
        racks = self.topics[partition.topic_id].racks[partition.number]
        return subscriber.rack is not None and subscriber.rack in racks


Assignor = Callable[[GroupSpec], dict[str, Partitions]]
"""Gives every partition that is wanted to exactly one member that wants it."""
