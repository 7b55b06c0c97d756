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


class Stage(Enum):
    """How far a member is on its way into the group."""

    UNJOINED = "unjoined"
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"


START_OVER = {
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
        self.stage = Stage.UNJOINED
        self.member_id = ""
        self.generation_id = NO_GENERATION
        self.partitions: list[TopicPartition] = []
        self.wanted_by: dict[str, list[str]] = {}
        """Who wants which topics; only the leader of the group is told."""
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self.instance_id = instance_id

    @property
    def is_leader(self) -> bool:
        return bool(self.wanted_by)

    def join(self) -> JoinGroupRequest:
        """Ask to be let in."""
        self.stage = Stage.JOINING
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=ASSIGNOR, metadata=subscription_bytes(self.topics))],
        )

    def joined(self, answer: JoinGroupResponse) -> bool:
        """Are we in? If not, ask again; BrokerRefused if asking again is of no use."""
        error = ErrorCode.from_code(answer.error_code)
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return False
        if error in START_OVER:
            self._step_back(error)
            return False
        check(answer.error_code, f"joining group {self.group_id}")
        self.stage = Stage.SYNCING
        self.member_id = answer.member_id
        self.generation_id = answer.generation_id
        leads = answer.leader == answer.member_id and not answer.skip_assignment
        self.wanted_by = (
            {member.member_id: subscribed_topics(member.metadata) for member in answer.members}
            if leads
            else {}
        )
        return True

    def sync(self, partition_counts: Mapping[str, int]) -> SyncGroupRequest:
        """Ask for our partitions; the leader hands out everyone's."""
        shares = assign_ranges(self.wanted_by, partition_counts) if self.is_leader else {}
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

    def synced(self, answer: SyncGroupResponse) -> bool:
        """Do we have our partitions? If not, join again."""
        if not self._is_settled(answer.error_code, "syncing with"):
            return False
        self.stage = Stage.STABLE
        self.partitions = sorted(assigned_partitions(answer.assignment))
        return True

    def heartbeat(self) -> HeartbeatRequest:
        """Say that we are alive."""
        return HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )

    def heard(self, answer: HeartbeatResponse) -> bool:
        """Is the group as it was? If not, join again."""
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS.code:
            # Until we join again we are still of the old generation, and may commit what we have read in it.
            return False
        return self._is_settled(answer.error_code, "staying in")

    def refused(self, error: ErrorCode) -> bool:
        """Was a commit refused because the group moved on? Then join again."""
        if error not in START_OVER:
            return False
        self._step_back(error)
        return True

    def revoked(self) -> None:
        """Our partitions are given up; we are on our way to the next generation."""
        self.partitions = []
        self.stage = Stage.UNJOINED

    def leave(self) -> LeaveGroupRequest:
        """Say good-bye, so that the others need not wait for the session to run out."""
        member = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        return LeaveGroupRequest(group_id=self.group_id, member_id=self.member_id, members=[member])

    @property
    def leaves_when_closed(self) -> bool:
        """A static member keeps its place while it is away."""
        return bool(self.member_id) and self.instance_id is None

    def _is_settled(self, code: int, doing: str) -> bool:
        error = ErrorCode.from_code(code)
        if error in START_OVER:
            self._step_back(error)
            return False
        check(code, f"{doing} group {self.group_id}")
        return True

    def _step_back(self, error: ErrorCode) -> None:
        self.stage = Stage.UNJOINED
        self.generation_id = NO_GENERATION
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
