"""One consumer group (KIP-848). Its state is stored in the log and changes only by replay, except soft state.

Every change of members, subscriptions or topics bumps the group epoch. A target assignment is then computed
for it (the assignment epoch follows), and every member reconciles towards it by heartbeats:

    STABLE ── must revoke ──▶ UNREVOKED_PARTITIONS ── revocation acknowledged ──┐
      │ ▲                                                                       │
      │ └────────── all partitions of the target are free and assigned ─────────┤
      └── target has partitions that others own ──▶ UNRELEASED_PARTITIONS ◀─────┘

A partition is assigned to a new owner only after the previous one has released it, so that it never has two.
"""

from dataclasses import dataclass, field, replace
from enum import Enum

from runnel.coordinator.contract import Timer
from runnel.coordinator.group.consumer.cluster import NO_PARTITIONS, Partitions, TopicIdPartition
from runnel.coordinator.group.consumer.member import ConsumerMember
from runnel.model.errors import ApiError, ErrorCode

NEVER_ASSIGNED = 0
"""The assignment epoch before the first assignment."""


class ConsumerGroupState(Enum):
    """Kafka's states of a consumer group."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class ResolvedPattern:
    """The topics that a regular expression matched, and when."""

    topics: tuple[str, ...]
    version: int
    resolved_ms: int


@dataclass(slots=True)
class ConsumerGroup:
    """A consumer group."""

    id: str
    epoch: int = 1
    """The initial epoch; 0 is the epoch of joining members."""
    metadata_hash: int = 0
    """Of the subscribed topics at the group epoch."""
    assignment_epoch: int = NEVER_ASSIGNED
    assignment_ms: int = 0
    """When the target assignment was computed; 0 if never."""
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    """Instance id → member id."""
    target: dict[str, Partitions] = field(default_factory=dict)
    """Member id → target assignment."""
    owners: dict[TopicIdPartition, str] = field(default_factory=dict)
    """Partition → the member that owns it or has not released it yet."""
    patterns: dict[str, ResolvedPattern] = field(default_factory=dict)

    checked_version: int = -1
    """Soft: the metadata version that was last checked for changes."""
    rejoining: set[str] = field(default_factory=set)
    """Soft: classic members with a running rejoin timeout."""

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_stable_at(self.assignment_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def copy(self) -> "ConsumerGroup":
        """An independent copy."""
        return replace(
            self,
            members=self.members.copy(),
            static_members=self.static_members.copy(),
            target=self.target.copy(),
            owners=self.owners.copy(),
            patterns=self.patterns.copy(),
        )

    def session_timer(self, member_id: str) -> Timer:
        return Timer("session", self.id, member_id)

    def revocation_timer(self, member_id: str) -> Timer:
        return Timer("revocation", self.id, member_id)

    def rejoin_timer(self, member_id: str) -> Timer:
        return Timer("rejoin", self.id, member_id)

    def resync_timer(self, member_id: str) -> Timer:
        return Timer("resync", self.id, member_id)

    def member(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {self.id} has no member {member_id}")
        return member

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        holder = self.static_members.get(instance_id)
        return None if holder is None else self.members[holder]

    def check_member(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """The member. UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another member has the instance id."""
        if instance_id is None:
            return self.member(member_id)
        holder = self.static_member(instance_id)
        if holder is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {self.id} has no instance {instance_id}")
        if holder.id != member_id:
            raise ApiError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"instance id {instance_id} is now used by member {holder.id}, not {member_id}",
            )
        return holder

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """The topics that a member is subscribed to, by name or by pattern."""
        resolved = self.patterns.get(member.pattern) if member.pattern else None
        return member.topics if resolved is None else member.topics.union(resolved.topics)

    def subscribed_topics(self) -> frozenset[str]:
        """The topics that any member is subscribed to."""
        topics = set[str]()
        for pattern in {member.pattern for member in self.members.values() if member.pattern}:
            if pattern in self.patterns:
                topics.update(self.patterns[pattern].topics)
        return frozenset(topics.union(*(member.topics for member in self.members.values())))

    def target_of(self, member_id: str) -> Partitions:
        return self.target.get(member_id, NO_PARTITIONS)

    def put(self, member: ConsumerMember) -> None:
        """Replay: add or replace a member."""
        former = self.members.get(member.id)
        if former is not None:
            self._release(former)
        self.members[member.id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.id
        for partition in (*member.assigned, *member.revoking):
            self.owners[partition] = member.id

    def remove(self, member_id: str) -> None:
        """Replay: remove a member and release its partitions."""
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._release(member)
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
            del self.static_members[member.instance_id]

    def _release(self, member: ConsumerMember) -> None:
        for partition in (*member.assigned, *member.revoking):
            if self.owners.get(partition) == member.id:
                del self.owners[partition]
