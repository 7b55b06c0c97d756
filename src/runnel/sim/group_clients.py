"""Members of a classic consumer group, and what they observe.

Detected anomalies: two owners of a partition in one generation, and committed offsets that decrease.
"""

from dataclasses import dataclass, field

from runnel.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from runnel.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from runnel.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from runnel.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from runnel.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from runnel.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from runnel.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from runnel.model.errors import ErrorCode
from runnel.sim.clients import TOPIC, SimClient
from runnel.sim.history import Anomaly
from runnel.sim.world import Connection, World

GROUP = "workers"
PARTITIONS = range(5)
_REJOIN_ERRORS = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}


@dataclass
class Ledger:
    """Assignments and acknowledged offsets of all members."""

    owners: dict[tuple[int, int], str] = field(default_factory=dict)
    """(generation, partition) → owner."""
    acknowledged: dict[int, int] = field(default_factory=dict)
    assignments: int = 0
    commits: int = 0

    def assigned(self, generation: int, member_id: str, partitions: set[int]) -> None:
        self.assignments += 1
        for partition in partitions:
            owner = self.owners.setdefault((generation, partition), member_id)
            if owner != member_id:
                raise Anomaly(f"{partition} has two owners in generation {generation}")


class Member(SimClient):
    """A member of the group; it survives crashes of the broker."""

    def __init__(self, name: str, ledger: Ledger) -> None:
        self.name = name
        self.ledger = ledger
        self.member_id = ""
        self.generation = -1
        self.others: list[str] = []
        self.owned: set[int] | None = None
        self.positions: dict[int, int] = {}

    async def run_once(self, connection: Connection, world: World) -> None:
        await connection.ask(FindCoordinatorRequest(coordinator_keys=[GROUP]), FindCoordinatorResponse)
        if self.generation < 0:
            await self.join(connection)
        elif self.owned is None:
            await self.sync(connection)
        elif world.random.random() < 0.01:
            await self.leave(connection)
        elif world.random.random() < 0.5:
            await self.beat(connection)
        else:
            await self.commit(connection, world)

    def handle_error(self, error: ErrorCode) -> None:
        if error in _REJOIN_ERRORS:
            self.member_id = ""
        self.generation, self.owned, self.positions = -1, None, {}

    async def join(self, connection: Connection) -> None:
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=1000,
            rebalance_timeout_ms=1500,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", b"wishes")],
        )
        answer = await connection.ask(request, JoinGroupResponse)
        error = ErrorCode.from_code(answer.error_code)
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        elif error is ErrorCode.NONE:
            self.member_id, self.generation = answer.member_id, answer.generation_id
            self.others = [member.member_id for member in answer.members]
        else:
            self.handle_error(error)

    async def sync(self, connection: Connection) -> None:
        shares = {
            member: bytes(part for part in PARTITIONS if part % len(self.others) == index)
            for index, member in enumerate(self.others)
        }
        assignments = [SyncGroupRequestAssignment(member, share) for member, share in shares.items()]
        request = SyncGroupRequest(
            GROUP, self.generation, self.member_id, None, "consumer", "range", assignments
        )
        answer = await connection.ask(request, SyncGroupResponse)
        if answer.error_code:
            self.handle_error(ErrorCode.from_code(answer.error_code))
            return
        self.owned = set(bytes(answer.assignment))
        self.ledger.assigned(self.generation, self.member_id, self.owned)

    async def beat(self, connection: Connection) -> None:
        answer = await connection.ask(
            HeartbeatRequest(GROUP, self.generation, self.member_id), HeartbeatResponse
        )
        if answer.error_code:
            self.handle_error(ErrorCode.from_code(answer.error_code))

    async def leave(self, connection: Connection) -> None:
        await connection.ask(
            LeaveGroupRequest(GROUP, members=[MemberIdentity(self.member_id)]), LeaveGroupResponse
        )
        self.handle_error(ErrorCode.UNKNOWN_MEMBER_ID)

    async def commit(self, connection: Connection, world: World) -> None:
        if not self.owned:
            return
        partition = world.random.choice(sorted(self.owned))
        if partition not in self.positions:
            await self.fetch(connection, partition)
            return
        offset = self.positions[partition] + 1
        part = OffsetCommitRequestPartition(partition, offset)
        topic = OffsetCommitRequestTopic(name=TOPIC, partitions=[part])
        request = OffsetCommitRequest(GROUP, self.generation, self.member_id, topics=[topic])
        answer = await connection.ask(request, OffsetCommitResponse)
        error = ErrorCode.from_code(answer.topics[0].partitions[0].error_code)
        if error is ErrorCode.NONE:
            self.positions[partition] = offset
            known = self.ledger.acknowledged.get(partition, 0)
            self.ledger.acknowledged[partition] = max(known, offset)
            self.ledger.commits += 1
        else:
            self.handle_error(error)

    async def fetch(self, connection: Connection, partition: int) -> None:
        acknowledged = self.ledger.acknowledged.get(partition, 0)
        topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[partition])]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(GROUP, topics=topics)])
        answer = (await connection.ask(request, OffsetFetchResponse)).groups[0]
        if not answer.error_code:
            found = max(answer.topics[0].partitions[0].committed_offset, 0)
            if found < acknowledged:
                raise Anomaly(f"{partition}: {acknowledged} was acknowledged, {found} is committed")
            self.positions[partition] = found
