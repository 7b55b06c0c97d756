"""One consumer's place in a classic group, without I/O: what to ask next, and what the answers mean.

UNJOINED ──join──▶ JOINING ──answer──▶ SYNCING ──answer──▶ STABLE
    ▲                 │ member id wanted: ask again      │ heartbeat says "rebalance": rejoin
    └── fenced or unknown: forget who we were ◀──────────┘
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
    """How far a member is on its way into the group."""

    UNJOINED = "unjoined"
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"


REJOIN_ERRORS = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
}
"""Answers that send a member back to the door; nothing is wrong with it."""


class Membership:
    """Who we are in the group, and which partitions are ours."""

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
        """Who wants which topics; only the leader of the group is told."""
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self.instance_id = instance_id

    @property
    def is_leader(self) -> bool:
        return bool(self.subscriptions)

    def join(self) -> JoinGroupRequest:
        """Ask to be let in."""
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
        """Are we in? If not, ask again; BrokerRefused if asking again is of no use."""
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
        leads = response.leader == response.member_id and not response.skip_assignment
        self.subscriptions = (
            {member.member_id: subscribed_topics(member.metadata) for member in response.members}
            if leads
            else {}
        )
        return True

    def sync(self, partition_counts: Mapping[str, int]) -> SyncGroupRequest:
        """Ask for our partitions; the leader hands out everyone's."""
        shares = assign_ranges(self.subscriptions, partition_counts) if self.is_leader else {}
        return SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=ASSIGNOR,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment_bytes(partitions))
                for member_id, partitions in shares.items()
            ],
        )

    def synced(self, response: SyncGroupResponse) -> bool:
        """Do we have our partitions? If not, join again."""
        if not self._is_current(response.error_code, "syncing with"):
            return False
        self.state = MembershipState.STABLE
        self.partitions = sorted(assigned_partitions(response.assignment))
        return True

    def heartbeat(self) -> HeartbeatRequest:
        """Say that we are alive."""
        return HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )

    def heartbeat_received(self, response: HeartbeatResponse) -> bool:
        """Is the group as it was? If not, join again."""
        if response.error_code == ErrorCode.REBALANCE_IN_PROGRESS.code:
            # Until we join again we are still of the old generation, and may commit what we have read in it.
            return False
        return self._is_current(response.error_code, "staying in")

    def commit_rejected(self, error: ErrorCode) -> bool:
        """Was a commit refused because the group moved on? Then join again."""
        if error not in REJOIN_ERRORS:
            return False
        self._reset(error)
        return True

    def revoked(self) -> None:
        """Our partitions are given up; we are on our way to the next generation."""
        self.partitions = []
        self.state = MembershipState.UNJOINED

    def leave(self) -> LeaveGroupRequest:
        """Say good-bye, so that the others need not wait for the session to run out."""
        member = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        return LeaveGroupRequest(group_id=self.group_id, member_id=self.member_id, members=[member])

    @property
    def leaves_on_close(self) -> bool:
        """A static member keeps its place while it is away."""
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
