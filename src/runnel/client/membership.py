"""The state machine of a consumer in a classic group, without I/O.

UNJOINED ──join──▶ JOINING ──response──▶ SYNCING ──response──▶ STABLE
    ▲                 │ MEMBER_ID_REQUIRED: rejoin             │ REBALANCE_IN_PROGRESS: rejoin
    └── UNKNOWN_MEMBER_ID or ILLEGAL_GENERATION: reset ◀───────┘
"""

from collections.abc import Iterable, Mapping
from enum import Enum

from runnel.client.consumer_protocol import (
    assign_ranges,
    assigned_partitions,
    assignment_bytes,
    subscribed_topics,
    subscription_bytes,
)
from runnel.client.errors import check
from runnel.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from runnel.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from runnel.messages.leave_group import LeaveGroupRequest, MemberIdentity
from runnel.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition

PROTOCOL_TYPE = "consumer"
ASSIGNOR = "range"
NO_GENERATION = -1


class MembershipState(Enum):
    """The state of a member."""

    UNJOINED = "unjoined"
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"


REJOIN_ERRORS = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
}
"""Errors after which the member rejoins."""


class Membership:
    """The member id, generation and assignment of a consumer."""

    def __init__(
        self,
        group_id: str,
        topics: Iterable[str],
        *,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        instance_id: str | None,
    ) -> None:
        self.group_id = group_id
        self.topics = sorted(topics)
        self.state = MembershipState.UNJOINED
        self.member_id = ""
        self.generation_id = NO_GENERATION
        self.partitions: list[TopicPartition] = []
        self.subscriptions: dict[str, list[str]] = {}
        """The subscriptions of all members; only for the leader."""
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self.instance_id = instance_id

    @property
    def is_leader(self) -> bool:
        return bool(self.subscriptions)

    def join(self) -> JoinGroupRequest:
        """The JoinGroup request."""
        self.state = MembershipState.JOINING
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=ASSIGNOR, metadata=subscription_bytes(self.topics))],
        )

    def joined(self, response: JoinGroupResponse) -> bool:
        """Handle the JoinGroup response; False to rejoin, BrokerError if that is of no use."""
        error = ErrorCode.from_code(response.error_code)
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            return False
        if error in REJOIN_ERRORS:
            self._reset(error)
            return False
        check(response.error_code, f"joining group {self.group_id}")
        self.state = MembershipState.SYNCING
        self.member_id = response.member_id
        self.generation_id = response.generation_id
        is_leader = response.leader == response.member_id and not response.skip_assignment
        self.subscriptions = (
            {member.member_id: subscribed_topics(member.metadata) for member in response.members}
            if is_leader
            else {}
        )
        return True

    def sync(self, partition_counts: Mapping[str, int]) -> SyncGroupRequest:
        """The SyncGroup request; the leader's has the assignments of all members."""
        assignments_by_member = assign_ranges(self.subscriptions, partition_counts) if self.is_leader else {}
        return SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=ASSIGNOR,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment_bytes(partitions))
                for member_id, partitions in assignments_by_member.items()
            ],
        )

    def synced(self, response: SyncGroupResponse) -> bool:
        """Handle the SyncGroup response; False to rejoin."""
        if not self._is_current(response.error_code, "syncing"):
            return False
        self.state = MembershipState.STABLE
        self.partitions = sorted(assigned_partitions(response.assignment))
        return True

    def heartbeat(self) -> HeartbeatRequest:
        """The Heartbeat request."""
        return HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )

    def heartbeat_received(self, response: HeartbeatResponse) -> bool:
        """Handle the Heartbeat response; False to rejoin."""
        if response.error_code == ErrorCode.REBALANCE_IN_PROGRESS.code:
            # Until it rejoins, the member may commit in the old generation.
            return False
        return self._is_current(response.error_code, "sending a heartbeat to")

    def commit_rejected(self, error: ErrorCode) -> bool:
        """Handle a failed commit; True to rejoin because the group has rebalanced."""
        if error not in REJOIN_ERRORS:
            return False
        self._reset(error)
        return True

    def revoked(self) -> None:
        """The partitions were revoked before a rejoin."""
        self.partitions = []
        self.state = MembershipState.UNJOINED

    def leave(self) -> LeaveGroupRequest:
        """The LeaveGroup request."""
        member = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        return LeaveGroupRequest(group_id=self.group_id, member_id=self.member_id, members=[member])

    @property
    def leaves_on_close(self) -> bool:
        """Static members stay in the group until their session expires."""
        return bool(self.member_id) and self.instance_id is None

    def _is_current(self, code: int, doing: str) -> bool:
        error = ErrorCode.from_code(code)
        if error in REJOIN_ERRORS:
            self._reset(error)
            return False
        check(code, f"{doing} group {self.group_id}")
        return True

    def _reset(self, error: ErrorCode) -> None:
        self.state = MembershipState.UNJOINED
        self.generation_id = NO_GENERATION
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
