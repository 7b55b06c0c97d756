"""A simulated classic consumer: joins, assigns as leader, sends heartbeats and commits."""

from dataclasses import dataclass, field
from typing import Any

from runnel.messages.heartbeat import HeartbeatRequest
from runnel.messages.join_group import JoinGroupRequest, JoinGroupResponse
from runnel.messages.leave_group import LeaveGroupRequest, MemberIdentity
from runnel.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from runnel.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from runnel.model.errors import ApiError, ErrorCode
from tests.coordinator.commands import protocols
from tests.coordinator.world import World

PARTITIONS = range(6)
GROUP = "g"
_START_OVER = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}


def work(text: bytes) -> set[int]:
    """The partitions of an assignment."""
    return {int(name) for name in bytes(text).decode().split(",") if name}


@dataclass
class Consumer:
    """One client; `step` performs its next action."""

    world: World
    name: str
    instance_id: str | None
    version: int
    wishes: str = "range:t"
    member_id: str = ""
    generation: int = -1
    owned: set[int] = field(default_factory=set)
    waiter: int | None = None
    members: list[str] = field(default_factory=list)
    """The members to assign partitions to; empty unless it is the leader."""
    is_fenced: bool = False
    is_stable: bool = False

    @property
    def owner(self) -> str:
        """The owner of partitions: the instance id, or the member id."""
        return self.instance_id or self.member_id

    def step(self) -> None:
        """Handle a response, or send the next request."""
        if self.is_fenced:
            return
        if self.waiter is not None:
            response = self.world.answers.get(self.waiter)
            if response is not None:
                self.waiter = None
                self.take(response)
        elif self.is_stable:
            self.beat()
        elif self.generation < 0:
            self.join()
        else:
            self.sync()

    def take(self, response: Any) -> None:
        error = response if isinstance(response, ErrorCode) else ErrorCode.from_code(response.error_code)
        if error is ErrorCode.NONE and isinstance(response, JoinGroupResponse):
            self.member_id, self.generation = response.member_id, response.generation_id
            self.members = (
                [] if response.skip_assignment else [member.member_id for member in response.members]
            )
        elif error is ErrorCode.NONE:
            self.owned = work(response.assignment)
            self.is_stable = True
        elif error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif error is ErrorCode.FENCED_INSTANCE_ID:
            self.is_fenced = True
        else:
            self.rejoin(error)

    def rejoin(self, error: ErrorCode) -> None:
        if error in _START_OVER:
            self.member_id = ""
        self.generation, self.is_stable, self.owned = -1, False, set()

    def join(self) -> None:
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=protocols(self.wishes),
        )
        caller = self.world.caller(self.name, self.version)
        self.settle(
            self.world.decide(self.world.shard.join(request, caller, self.world.now())), caller.waiter
        )

    def sync(self) -> None:
        shares = {
            member: [partition for partition in PARTITIONS if partition % len(self.members) == place]
            for place, member in enumerate(self.members)
        }
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            assignments=[
                SyncGroupRequestAssignment(member, ",".join(map(str, share)).encode())
                for member, share in shares.items()
            ],
        )
        caller = self.world.caller(self.name, version=3)
        try:
            reply = self.world.decide(self.world.shard.sync(request, caller, self.world.now()))
        except ApiError as error:
            reply = SyncGroupResponse(error_code=error.code)
        self.settle(reply, caller.waiter)

    def settle(self, reply: Any, waiter: int) -> None:
        if reply is None or waiter in self.world.answers:
            self.waiter = waiter
        else:
            self.take(reply)

    def beat(self) -> None:
        request = HeartbeatRequest(GROUP, self.generation, self.member_id, self.instance_id)
        try:
            error = self.world.shard.heartbeat(request, self.world.now_ms)
        except ApiError as api_error:
            error = api_error.error
        if error is ErrorCode.FENCED_INSTANCE_ID:
            self.is_fenced = True
        elif error is not ErrorCode.NONE:
            self.rejoin(error)

    def commit(self, partition: int, offset: int) -> bool:
        """Whether the commit was acknowledged."""
        topic = OffsetCommitRequestTopic(
            name="t", partitions=[OffsetCommitRequestPartition(partition, offset, committed_metadata="")]
        )
        request = OffsetCommitRequest(
            GROUP, self.generation, self.member_id, self.instance_id, topics=[topic]
        )
        try:
            reply = self.world.decide(self.world.shard.commit(request, 8, self.world.now()))
        except ApiError as error:
            self.rejoin(error.error)
            return False
        return not isinstance(reply, ErrorCode)

    def leave(self) -> None:
        identity = MemberIdentity(self.member_id, self.instance_id)
        request = LeaveGroupRequest(group_id=GROUP, members=[identity])
        self.world.decide(self.world.shard.leave(request, self.world.now()))
