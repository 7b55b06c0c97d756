"""Groups in simulated worlds: the broker dies, loses power, runs out of disk; lines break; members leave.

One seed is one world. The broker is the one that ships, on a disk, a network and a clock that are made up.
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
from runnel.sim.actors import TOPIC, Actor, found_topic
from runnel.sim.network import Line
from runnel.sim.world import Life, World
from tests.broker.lives import act, live_and_die

GROUP = "workers"
PARTITIONS = range(5)
MEMBERS = 4
LIVES = 5
SETTLE_SECONDS_MAX = 60.0
_START_OVER = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}


@dataclass
class Ledger:
    """What the members were told, all of them together."""

    owners: dict[tuple[int, int], str] = field(default_factory=dict)
    """(generation, partition) → who owns it."""
    acknowledged: dict[int, int] = field(default_factory=dict)
    assignments: int = 0

    def assigned(self, generation: int, member_id: str, partitions: set[int]) -> None:
        self.assignments += 1
        for partition in partitions:
            owner = self.owners.setdefault((generation, partition), member_id)
            assert owner == member_id, f"{partition} has two owners in generation {generation}"


class Member(Actor):
    """A member of the group; it lives on when the broker dies."""

    def __init__(self, name: str, ledger: Ledger) -> None:
        self.name = name
        self.ledger = ledger
        self.member_id = ""
        self.generation = -1
        self.others: list[str] = []
        self.owned: set[int] | None = None
        self.positions: dict[int, int] = {}

    async def speak(self, line: Line, life: Life) -> None:
        await line.ask(FindCoordinatorRequest(coordinator_keys=[GROUP]), FindCoordinatorResponse)
        if self.generation < 0:
            await self.join(line)
        elif self.owned is None:
            await self.sync(line)
        elif life.random.random() < 0.01:
            await self.leave(line)
        elif life.random.random() < 0.5:
            await self.beat(line)
        else:
            await self.commit(line, life)

    def heard(self, error: ErrorCode) -> None:
        if error in _START_OVER:
            self.member_id = ""
        self.generation, self.owned, self.positions = -1, None, {}

    async def join(self, line: Line) -> None:
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=1000,
            rebalance_timeout_ms=1500,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", b"wishes")],
        )
        answer = await line.ask(request, JoinGroupResponse)
        error = ErrorCode.from_code(answer.error_code)
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        elif error is ErrorCode.NONE:
            self.member_id, self.generation = answer.member_id, answer.generation_id
            self.others = [member.member_id for member in answer.members]
        else:
            self.heard(error)

    async def sync(self, line: Line) -> None:
        shares = {
            member: bytes(part for part in PARTITIONS if part % len(self.others) == place)
            for place, member in enumerate(self.others)
        }
        assignments = [SyncGroupRequestAssignment(member, share) for member, share in shares.items()]
        request = SyncGroupRequest(
            GROUP, self.generation, self.member_id, None, "consumer", "range", assignments
        )
        answer = await line.ask(request, SyncGroupResponse)
        if answer.error_code:
            self.heard(ErrorCode.from_code(answer.error_code))
            return
        self.owned = set(bytes(answer.assignment))
        self.ledger.assigned(self.generation, self.member_id, self.owned)

    async def beat(self, line: Line) -> None:
        answer = await line.ask(HeartbeatRequest(GROUP, self.generation, self.member_id), HeartbeatResponse)
        if answer.error_code:
            self.heard(ErrorCode.from_code(answer.error_code))

    async def leave(self, line: Line) -> None:
        await line.ask(LeaveGroupRequest(GROUP, members=[MemberIdentity(self.member_id)]), LeaveGroupResponse)
        self.heard(ErrorCode.UNKNOWN_MEMBER_ID)

    async def commit(self, line: Line, life: Life) -> None:
        if not self.owned:
            return
        partition = life.random.choice(sorted(self.owned))
        if partition not in self.positions:
            await self.fetch(line, partition)
            return
        offset = self.positions[partition] + 1
        part = OffsetCommitRequestPartition(partition, offset)
        topic = OffsetCommitRequestTopic(name=TOPIC, partitions=[part])
        request = OffsetCommitRequest(GROUP, self.generation, self.member_id, topics=[topic])
        answer = await line.ask(request, OffsetCommitResponse)
        error = ErrorCode.from_code(answer.topics[0].partitions[0].error_code)
        if error is ErrorCode.NONE:
            self.positions[partition] = offset
            known = self.ledger.acknowledged.get(partition, 0)
            self.ledger.acknowledged[partition] = max(known, offset)
        else:
            self.heard(error)

    async def fetch(self, line: Line, partition: int) -> None:
        acknowledged = self.ledger.acknowledged.get(partition, 0)
        topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[partition])]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(GROUP, topics=topics)])
        answer = (await line.ask(request, OffsetFetchResponse)).groups[0]
        if not answer.error_code:
            found = max(answer.topics[0].partitions[0].committed_offset, 0)
            assert found >= acknowledged, f"{partition} was committed at {acknowledged} and is at {found}"
            self.positions[partition] = found


@pytest.mark.parametrize("seed", range(8))
def test_groups_keep_their_promises_through_crashes(seed: int) -> None:
    luck = Random(seed)
    policy = luck.choice(["commit", "never"])
    settings = {"log.flush.policy": policy, "group.min.session.timeout.ms": "100"}
    world = World(luck.getrandbits(64), settings=settings)
    ledger = Ledger()
    members = [Member(f"m{number}", ledger) for number in range(MEMBERS)]
    world.live(lambda life: found_topic(life, len(PARTITIONS)))
    # Without a sync before each acknowledgement a power cut may take what was acknowledged, as with Kafka.
    ways_to_die = ["kill", "stop", "power"] if policy == "commit" else ["kill", "stop"]
    for _ in range(LIVES):
        live_and_die(world, members, luck, ways_to_die)

    before = ledger.assignments
    deadlines: list[float] = []

    def is_settled(now: float) -> bool:
        if not deadlines:
            deadlines.append(now + SETTLE_SECONDS_MAX)
        assert now < deadlines[0], "the group is stuck"
        generations = {member.generation for member in members}
        owned = [member.owned or set() for member in members]
        return (
            ledger.assignments > before
            and len(generations) == 1
            and sum(map(len, owned)) == len(PARTITIONS) == len(set().union(*owned))
        )

    world.live(lambda life: act(life, members, is_settled))
