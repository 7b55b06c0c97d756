"""Simulation of consumer groups: crashes, power failures, full disk, lost connections, leaving members.

One seed is one simulation of the shipped broker.
"""

from dataclasses import dataclass, field
from random import Random

import pytest

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
from runnel.sim.clients import TOPIC, SimClient, create_topic
from runnel.sim.network import SimConnection
from runnel.sim.simulation import Incarnation, Simulation
from tests.broker.simulated_runs import run_clients, run_until_shutdown

GROUP = "workers"
PARTITIONS = range(5)
MEMBERS = 4
RESTARTS = 5
SETTLE_SECONDS_MAX = 60.0
_REJOIN_ERRORS = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}


@dataclass
class Ledger:
    """Assignments and acknowledged offsets of all members."""

    owners: dict[tuple[int, int], str] = field(default_factory=dict)
    """(generation, partition) → owner."""
    acknowledged: dict[int, int] = field(default_factory=dict)
    assignments: int = 0

    def assigned(self, generation: int, member_id: str, partitions: set[int]) -> None:
        self.assignments += 1
        for partition in partitions:
            owner = self.owners.setdefault((generation, partition), member_id)
            assert owner == member_id, f"{partition} has two owners in generation {generation}"


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

    async def run_once(self, connection: SimConnection, incarnation: Incarnation) -> None:
        await connection.ask(FindCoordinatorRequest(coordinator_keys=[GROUP]), FindCoordinatorResponse)
        if self.generation < 0:
            await self.join(connection)
        elif self.owned is None:
            await self.sync(connection)
        elif incarnation.random.random() < 0.01:
            await self.leave(connection)
        elif incarnation.random.random() < 0.5:
            await self.beat(connection)
        else:
            await self.commit(connection, incarnation)

    def handle_error(self, error: ErrorCode) -> None:
        if error in _REJOIN_ERRORS:
            self.member_id = ""
        self.generation, self.owned, self.positions = -1, None, {}

    async def join(self, connection: SimConnection) -> None:
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

    async def sync(self, connection: SimConnection) -> None:
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

    async def beat(self, connection: SimConnection) -> None:
        answer = await connection.ask(
            HeartbeatRequest(GROUP, self.generation, self.member_id), HeartbeatResponse
        )
        if answer.error_code:
            self.handle_error(ErrorCode.from_code(answer.error_code))

    async def leave(self, connection: SimConnection) -> None:
        await connection.ask(
            LeaveGroupRequest(GROUP, members=[MemberIdentity(self.member_id)]), LeaveGroupResponse
        )
        self.handle_error(ErrorCode.UNKNOWN_MEMBER_ID)

    async def commit(self, connection: SimConnection, incarnation: Incarnation) -> None:
        if not self.owned:
            return
        partition = incarnation.random.choice(sorted(self.owned))
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
        else:
            self.handle_error(error)

    async def fetch(self, connection: SimConnection, partition: int) -> None:
        acknowledged = self.ledger.acknowledged.get(partition, 0)
        topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[partition])]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(GROUP, topics=topics)])
        answer = (await connection.ask(request, OffsetFetchResponse)).groups[0]
        if not answer.error_code:
            found = max(answer.topics[0].partitions[0].committed_offset, 0)
            assert found >= acknowledged, (
                f"{partition}: {acknowledged} was acknowledged, {found} is committed"
            )
            self.positions[partition] = found


@pytest.mark.parametrize("seed", range(8))
def test_groups_hold_their_guarantees_through_crashes(seed: int) -> None:
    random = Random(seed)
    policy = random.choice(["commit", "never"])
    settings = {"log.flush.policy": policy, "group.min.session.timeout.ms": "100"}
    simulation = Simulation(random.getrandbits(64), settings=settings)
    ledger = Ledger()
    members = [Member(f"m{number}", ledger) for number in range(MEMBERS)]
    simulation.run_broker(lambda incarnation: create_topic(incarnation, len(PARTITIONS)))
    # Without a flush before the acknowledgement, a power failure may lose acknowledged records, as in Kafka.
    shutdown_kinds = ["kill", "stop", "power"] if policy == "commit" else ["kill", "stop"]
    for _ in range(RESTARTS):
        run_until_shutdown(simulation, members, random, shutdown_kinds)

    before = ledger.assignments
    deadlines: list[float] = []

    def is_settled(now: float) -> bool:
        if not deadlines:
            deadlines.append(now + SETTLE_SECONDS_MAX)
        assert now < deadlines[0], "no progress"
        generations = {member.generation for member in members}
        owned = [member.owned or set() for member in members]
        return (
            ledger.assignments > before
            and len(generations) == 1
            and sum(map(len, owned)) == len(PARTITIONS) == len(set().union(*owned))
        )

    simulation.run_broker(lambda incarnation: run_clients(incarnation, members, is_settled))
