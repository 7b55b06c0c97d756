"""One classic group.

             first member joins                  all joined, or timeout
    Empty ──────────────────────▶ PreparingRebalance ──────────────────────▶ CompletingRebalance
      ▲                            │  ▲    ▲                                   │           │
      └────────────────────────────┘  │    └─ a member joins, leaves, expires ─┘           │ the assignment
            no member joined          │                                                    │ is appended
                                      └────── a member joins, leaves, expires ─ Stable ◀───┘

A group that does not exist is Dead. The log stores the last stable or empty generation of a group, and its
offsets (see `offset_store`); all other state is soft.
"""

from dataclasses import dataclass, field
from enum import Enum

from runnel.coordinator.contract import Timer
from runnel.coordinator.group.member import Member, Protocols, select_protocol
from runnel.model.errors import ApiError, ErrorCode


class GroupState(Enum):
    """Kafka's states of a classic group."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_VALID_PREVIOUS_STATES = {
    GroupState.EMPTY: {GroupState.PREPARING},
    GroupState.PREPARING: {GroupState.STABLE, GroupState.COMPLETING, GroupState.EMPTY},
    GroupState.COMPLETING: {GroupState.PREPARING},
    GroupState.STABLE: {GroupState.COMPLETING},
}

CONSUMER_PROTOCOL = "consumer"
"""The protocol type of consumers, whose subscriptions the coordinator can decode."""


@dataclass(slots=True)
class Committer:
    """The sender of an offset commit, in either protocol."""

    member_id: str
    instance_id: str | None
    generation: int
    """Or the member epoch; -1 if the sender is not a member."""
    api_version: int
    is_transactional: bool = False


@dataclass(slots=True)
class Group:
    """A classic group: members that rebalance in generations."""

    id: str
    state: GroupState = GroupState.EMPTY
    previous_state: GroupState = GroupState.DEAD
    state_since_ms: int = -1
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    """Instance id → member id."""
    pending: set[str] = field(default_factory=set)
    """Member ids that were returned with MEMBER_ID_REQUIRED and have not joined yet."""
    joining: dict[str, int] = field(default_factory=dict)
    """Members that wait for the next generation → their parked request."""
    syncing: dict[str, int] = field(default_factory=dict)
    """Members that wait for the leader's assignment → their parked request."""
    unsynced: set[str] = field(default_factory=set)
    """Members of this generation that have not sent SyncGroup yet."""
    protocol_counts: dict[str, int] = field(default_factory=dict)
    """Protocol → number of members that support it."""
    new_member_added: bool = False
    """A member joined during the initial rebalance delay, which extends it."""
    initial_delay_ms: int = 0
    initial_remaining_ms: int = 0

    @property
    def join_timer(self) -> Timer:
        return Timer("join", self.id)

    @property
    def sync_timer(self) -> Timer:
        return Timer("sync", self.id)

    def session_timer(self, member_id: str) -> Timer:
        return Timer("session", self.id, member_id)

    @property
    def can_rebalance(self) -> bool:
        return self.state in _VALID_PREVIOUS_STATES[GroupState.PREPARING]

    @property
    def has_all_joined(self) -> bool:
        return len(self.joining) == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def enter(self, state: GroupState, now_ms: int) -> None:
        """Transition to another state."""
        assert self.state in _VALID_PREVIOUS_STATES[state], (
            f"group {self.id} cannot transition from {self.state} to {state}"
        )
        self.previous_state = self.state
        self.state = state
        self.state_since_ms = now_ms

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether these protocols are compatible with those of the other members."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        return protocol_type == self.protocol_type and any(
            self.protocol_counts.get(name, 0) == len(self.members) for name, _ in protocols
        )

    def check_member(self, member_id: str, instance_id: str | None) -> Member:
        """The member. UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another member has the instance id."""
        if instance_id is not None:
            holder = self.static_members.get(instance_id)
            if holder is not None and holder != member_id:
                raise ApiError(
                    ErrorCode.FENCED_INSTANCE_ID, f"instance id {instance_id} is now used by member {holder}"
                )
            if holder is None:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {self.id} has no instance {instance_id}")
        member = self.members.get(member_id)
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {self.id} has no member {member_id}")
        return member

    def check_commit(self, committer: Committer) -> None:
        """Validate an offset commit. Raises ApiError."""
        generation = committer.generation
        if generation < 0 and self.state is GroupState.EMPTY:
            return
        if generation >= 0 or committer.member_id or committer.instance_id is not None:
            self.check_member(committer.member_id, committer.instance_id)
            if generation != self.generation:
                raise ApiError(
                    ErrorCode.ILLEGAL_GENERATION, f"group {self.id} is at generation {self.generation}"
                )
        elif not committer.is_transactional:
            raise ApiError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"group {self.id} has members, and only they can commit offsets"
            )
        # A transaction may have started in the previous generation and end during the rebalance.
        if not committer.is_transactional and self.state is GroupState.COMPLETING:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, f"group {self.id} is rebalancing")

    def add(self, member: Member, protocol_type: str | None) -> None:
        """Add a member; the first one becomes the leader and determines the protocol type."""
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.id
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.id
        self.members[member.id] = member
        self.pending.discard(member.id)
        self._count(member.protocols, 1)

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending member id; its parked requests must have been completed."""
        assert member_id not in self.joining, f"{member_id} was removed while its join is parked"
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member.protocols, -1)
            if member.instance_id is not None:
                self.static_members.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending.discard(member_id)
        self.unsynced.discard(member_id)
        self.syncing.pop(member_id, None)

    def replace(self, member: Member, old_id: str) -> None:
        """Replace a static member that rejoined with a new member id."""
        former = self.members[old_id]
        self._count(former.protocols, -1)
        self._count(member.protocols, 1)
        # The order of members determines leadership and votes, so the position is retained.
        self.members = {
            member.id if held == old_id else held: member if held == old_id else other
            for held, other in self.members.items()
        }
        if self.leader == old_id:
            self.leader = member.id
        assert member.instance_id is not None, "only a static member can be replaced"
        self.static_members[member.instance_id] = member.id
        self.unsynced.discard(old_id)

    def set_protocols(self, member: Member, protocols: Protocols) -> None:
        """Update the protocols of a member."""
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, 1)

    def elect_joined_leader(self) -> bool:
        """Ensure that the leader is among the joined members; False if none has joined."""
        if self.leader not in self.joining:
            joined = next((member_id for member_id in self.members if member_id in self.joining), None)
            if joined is None:
                return False
            self.leader = joined
        return True

    def begin_generation(self, now_ms: int) -> None:
        """Start the next generation: select the protocol and wait for the leader's assignment."""
        self.generation += 1
        self.protocol = select_protocol(member.protocols for member in self.members.values())
        assert self.protocol is not None, f"group {self.id} has members without a common protocol"
        self.enter(GroupState.COMPLETING, now_ms)
        self.unsynced = set(self.members)

    def _count(self, protocols: Protocols, change: int) -> None:
        for name, _ in protocols:
            count = self.protocol_counts.get(name, 0) + change
            if count:
                self.protocol_counts[name] = count
            else:
                self.protocol_counts.pop(name, None)
