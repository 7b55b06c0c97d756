"""A consumer group with the uncommitted changes of one request.

A draft is a copy that replays each record as it is written, so that the later steps of a request see the
effects of the earlier ones, while the group itself changes only when the records are appended.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from runnel.coordinator.contract import Moment, NewRecord
from runnel.coordinator.group.consumer.assignor import Assignor, GroupSpec, Subscriber
from runnel.coordinator.group.consumer.cluster import Cluster, TopicMetadata, metadata_hash
from runnel.coordinator.group.consumer.group import ConsumerGroup, ResolvedPattern
from runnel.coordinator.group.consumer.member import ConsumerMember
from runnel.coordinator.group.consumer.ranges import assign_ranges
from runnel.coordinator.group.consumer.records import (
    current_record,
    epoch_record,
    member_record,
    member_tombstones,
    pattern_record,
    pattern_tombstone,
    replay_consumer_record,
    target_epoch_record,
    target_record,
)
from runnel.coordinator.group.consumer.uniform import assign_uniformly

ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniformly, "range": assign_ranges}


@dataclass(slots=True)
class Draft:
    """A copy of a group to which records are applied as they are written."""

    group: ConsumerGroup
    cluster: Cluster
    now: Moment
    records: list[NewRecord] = field(default_factory=list)
    shows_topic: Callable[[str], bool] | None = None
    """Whether the client of the request may know of a topic: a pattern matches no other; None if of all."""

    def write(self, *records: NewRecord) -> None:
        for record in records:
            self.records.append(record)
            replay_consumer_record(self.group, record.key, record.value)

    def write_member(self, member: ConsumerMember) -> None:
        """Write a new member, or changed metadata of a member."""
        self.write(member_record(self.group.id, member))

    def write_current_assignment(self, member: ConsumerMember) -> None:
        """Write the current assignment of a member."""
        self.write(current_record(self.group.id, member))

    def remove(self, member_id: str) -> None:
        """Remove a member, and its pattern if no other member uses it."""
        self.write(*member_tombstones(self.group.id, member_id))
        self.remove_unused_patterns()

    def remove_unused_patterns(self) -> None:
        """Remove the patterns that no member uses."""
        used = {member.pattern for member in self.group.members.values()}
        for pattern in [pattern for pattern in self.group.patterns if pattern not in used]:
            self.write(pattern_tombstone(self.group.id, pattern))

    def resolve_patterns(self) -> None:
        """Resolve all patterns against the metadata, and write those that changed."""
        patterns = {member.pattern for member in self.group.members.values() if member.pattern}
        for pattern in sorted(patterns):
            topics = self.cluster.matching(pattern)
            if self.shows_topic is not None:
                topics = tuple(filter(self.shows_topic, topics))
            known = self.group.patterns.get(pattern)
            if known is None or known.topics != topics:
                resolved = ResolvedPattern(topics, self.cluster.version, self.now.wall_ms)
                self.write(pattern_record(self.group.id, pattern, resolved))

    def bump_epoch_if_changed(self, *, has_changed: bool) -> None:
        """Bump the group epoch if members, subscriptions or the metadata of subscribed topics changed."""
        current_hash = metadata_hash(self.subscribed_topics())
        if has_changed or current_hash != self.group.metadata_hash:
            self.write(epoch_record(self.group.id, self.group.epoch + 1, current_hash))

    def subscribed_topics(self) -> list[TopicMetadata]:
        """The subscribed topics that exist."""
        return self._existing(self.group.subscribed_topics())

    def assign(self, default_assignor: str) -> None:
        """Compute the target assignment of the current epoch, and write the members for which it changed."""
        topics = {topic.id: topic for topic in self.subscribed_topics()}
        subscribed: dict[frozenset[str], frozenset[bytes]] = {}
        subscribers = [self._subscriber(member, subscribed) for member in self.group.members.values()]
        name = preferred_assignor(self.group) or default_assignor
        target = ASSIGNORS[name](GroupSpec(subscribers, topics))
        for member_id, partitions in target.items():
            if self.group.target.get(member_id) != partitions:
                self.write(target_record(self.group.id, member_id, partitions))
        self.write(target_epoch_record(self.group.id, self.group.epoch, self.now.wall_ms))

    def _subscriber(
        self, member: ConsumerMember, subscribed: dict[frozenset[str], frozenset[bytes]]
    ) -> Subscriber:
        names = self.group.topics_of(member)
        if names not in subscribed:
            # Most members have the same subscription.
            subscribed[names] = frozenset(topic.id for topic in self._existing(names))
        return Subscriber(
            id=member.id,
            instance_id=member.instance_id,
            rack=member.rack,
            topics=subscribed[names],
            assigned=self.group.target_of(member.id),
        )

    def _existing(self, names: Iterable[str]) -> list[TopicMetadata]:
        known = (self.cluster.topic(name) for name in names)
        return [topic for topic in known if topic is not None]


def preferred_assignor(group: ConsumerGroup) -> str | None:
    """The assignor that most members prefer; None if no member prefers a supported one."""
    votes: dict[str, int] = {}
    for member in group.members.values():
        if member.assignor in ASSIGNORS:
            votes[member.assignor] = votes.get(member.assignor, 0) + 1
    return max(votes, key=votes.__getitem__, default=None)
