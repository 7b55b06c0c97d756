"""One member of a consumer group: its metadata and its current assignment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from runnel.coordinator.group.consumer.cluster import Partitions, TopicIdPartition
from runnel.coordinator.group.member import Protocols

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2
"""A static member that left temporarily: its partitions stay assigned until its session expires."""


class MemberState(IntEnum):
    """The reconciliation state of a member, numbered as in records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It must revoke partitions before it can advance to the target epoch."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that other members have not released yet."""
    UNKNOWN = 127
    """A state that was written by a later release."""


@dataclass(frozen=True, slots=True)
class ClassicMetadata:
    """Metadata of a member that uses the classic protocol."""

    session_timeout_ms: int
    protocols: Protocols


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """An immutable member; a change replaces it."""

    id: str
    instance_id: str | None = None
    rack: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    """Topics that it is subscribed to by name."""
    pattern: str | None = None
    """The regular expression that it is subscribed to; empty or None if none."""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMetadata | None = None
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Mapping[TopicIdPartition, int] = field(default_factory=dict)
    """Its assigned partitions, each with its assignment epoch."""
    revoking: Mapping[TopicIdPartition, int] = field(default_factory=dict)
    """The partitions pending revocation."""

    @property
    def is_classic(self) -> bool:
        return self.classic is not None

    def is_stable_at(self, epoch: int) -> bool:
        """Whether it has reached the target assignment of this epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def assignment_epoch_of(self, partition: TopicIdPartition) -> int | None:
        """The assignment epoch of a partition that it owns or has not released yet."""
        epoch = self.assigned.get(partition)
        return self.revoking.get(partition) if epoch is None else epoch

    def owns_all(self, owned: Partitions) -> bool:
        return all(partition in self.assigned for partition in owned)
