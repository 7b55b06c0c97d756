"""One member of a consumer group: what it said of itself, and how far it has come with its assignment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from runnel.coordinator.group.consumer.cluster import Partitions, TopicIdPartition
from runnel.coordinator.group.member import Protocols

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2
"""A static member that left for a while: its place and its partitions are kept until its session ends."""


class MemberState(IntEnum):
    """How a member stands to its target, by the numbers that records use."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It must give up partitions before it can go on."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that others have not given up yet."""
    UNKNOWN = 127
    """A later release wrote a state that this one does not know."""


@dataclass(frozen=True, slots=True)
class ClassicMetadata:
    """What is kept of a member that speaks the classic protocol in a consumer group."""

    session_timeout_ms: int
    protocols: Protocols


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """A member. It never changes; a change is another member of the same id."""

    id: str
    instance_id: str | None = None
    rack: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    """Topics that it subscribed to by name."""
    pattern: str | None = None
    """A regular expression that it subscribed to topics with; empty or None if it did not."""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMetadata | None = None
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Mapping[TopicIdPartition, int] = field(default_factory=dict)
    """What it may read, and the epoch in which it was given each."""
    revoking: Mapping[TopicIdPartition, int] = field(default_factory=dict)
    """What it was asked to give up, and has not yet."""

    @property
    def is_classic(self) -> bool:
        return self.classic is not None

    def is_stable_at(self, epoch: int) -> bool:
        """Has it all that the target of this epoch wants it to have?"""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def assignment_epoch_of(self, partition: TopicIdPartition) -> int | None:
        """The epoch in which it was given a partition that it has, or has not given up yet."""
        epoch = self.assigned.get(partition)
        return self.revoking.get(partition) if epoch is None else epoch

    def owns_all(self, owned: Partitions) -> bool:
        return all(partition in self.assigned for partition in owned)
