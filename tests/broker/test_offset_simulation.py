"""Simulation of offsets in transactions: crashes, power failures, full disk, lost connections.

One seed is one simulation. A committer commits offsets of two groups in one transaction. Stable offsets are
always those of one committed transaction, and never older than acknowledged.
"""

from dataclasses import dataclass, field
from random import Random

import pytest

from runnel.messages.end_txn import EndTxnRequest, EndTxnResponse
from runnel.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from runnel.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from runnel.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from runnel.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from runnel.model.errors import ErrorCode
from runnel.sim.clients import TOPIC, SimClient, create_topic
from runnel.sim.simulation import Simulation
from runnel.sim.world import Connection, World
from tests.broker.simulated_runs import run_clients, run_until_shutdown

GROUPS = ["workers", "shipping"]
"""Their coordinators are different partitions."""
PARTITIONS = range(3)
COMMITTERS = 2
RESTARTS = 5
SETTLE_SECONDS_MAX = 60.0
COMMITS_AT_END = 5
GROUP_TYPE, TRANSACTION_TYPE = 0, 1


@dataclass
class Ledger:
    """Requested and acknowledged transactions of one committer."""

    acknowledged: int = -1
    """The last acknowledged transaction."""
    possible: set[int] = field(default_factory=lambda: {-1})
    """Every transaction whose commit was requested."""
    commits: int = 0

    def check(self, found: int, acknowledged: int) -> None:
        assert found in self.possible, f"commit of {found} was never requested"
        assert found >= acknowledged, f"{acknowledged} was acknowledged, {found} is committed"


class Committer(SimClient):
    """Commits the same offset for all its partitions in transactions; it survives crashes of the broker."""

    def __init__(self, number: int) -> None:
        self.name = f"committer-{number}"
        self.groups = [f"{group}-{number}" for group in GROUPS]
        self.ledger = Ledger()
        self.identity: tuple[int, int] | None = None
        self.last = -1

    async def run_once(self, connection: Connection, world: World) -> None:
        await self.find(connection)
        if self.identity is None:
            await self.begin(connection)
        else:
            await self.move(connection, world)

    async def find(self, connection: Connection) -> None:
        for kind, names in ((GROUP_TYPE, self.groups), (TRANSACTION_TYPE, [self.name])):
            await connection.ask(
                FindCoordinatorRequest(key_type=kind, coordinator_keys=names), FindCoordinatorResponse
            )

    async def begin(self, connection: Connection) -> None:
        """Initialise the producer, which aborts open transactions, and check the outcome."""
        answer = await connection.ask(InitProducerIdRequest(self.name, 60_000), InitProducerIdResponse)
        if answer.error_code:
            return
        found = {await read(connection, group, self.ledger) for group in self.groups}
        if None not in found:
            assert len(found) == 1, f"groups of {self.name} have different offsets: {found}"
            self.identity = answer.producer_id, answer.producer_epoch

    async def move(self, connection: Connection, world: World) -> None:
        assert self.identity is not None
        self.last += 1
        identity, self.identity = self.identity, None
        for group in self.groups:
            if not await self.commit(connection, group, identity):
                return
        is_commit = world.random.random() < 0.7
        if is_commit:
            self.ledger.possible.add(self.last)
        answer = await connection.ask(EndTxnRequest(self.name, *identity, is_commit), EndTxnResponse)
        if answer.error_code:
            return
        if is_commit:
            self.ledger.acknowledged = self.last
        self.ledger.commits += 1
        if world.random.random() < 0.8:
            self.identity = answer.producer_id, answer.producer_epoch

    async def commit(self, connection: Connection, group: str, identity: tuple[int, int]) -> bool:
        parts = [TxnOffsetCommitRequestPartition(index, self.last) for index in PARTITIONS]
        topics = [TxnOffsetCommitRequestTopic(TOPIC, parts)]
        while True:
            request = TxnOffsetCommitRequest(self.name, group, *identity, topics=topics)
            answer = await connection.ask(request, TxnOffsetCommitResponse)
            codes = {part.error_code for topic in answer.topics for part in topic.partitions}
            if codes != {ErrorCode.CONCURRENT_TRANSACTIONS.code}:
                return codes == {ErrorCode.NONE.code}


class Reader(SimClient):
    """Fetches stable offsets at any time."""

    def __init__(self, committers: list[Committer]) -> None:
        self.committers = committers

    async def run_once(self, connection: Connection, world: World) -> None:
        committer = world.random.choice(self.committers)
        await committer.find(connection)
        await read(connection, world.random.choice(committer.groups), committer.ledger)


async def read(connection: Connection, group: str, ledger: Ledger) -> int | None:
    """The committed offset of all partitions of a group; None if not available."""
    acknowledged = ledger.acknowledged
    topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=list(PARTITIONS))]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=topics)], require_stable=True)
    answer = (await connection.ask(request, OffsetFetchResponse)).groups[0]
    if answer.error_code:
        return None
    parts = answer.topics[0].partitions
    errors = {part.error_code for part in parts}
    assert errors in ({ErrorCode.NONE.code}, {ErrorCode.UNSTABLE_OFFSET_COMMIT.code}), "partial transaction"
    if errors != {ErrorCode.NONE.code}:
        return None
    found = {part.committed_offset for part in parts}
    assert len(found) == 1, f"partial transaction: {found}"
    ledger.check(parts[0].committed_offset, acknowledged)
    return parts[0].committed_offset


@pytest.mark.parametrize("seed", range(3))
def test_offsets_are_committed_atomically_through_crashes(seed: int) -> None:
    random = Random(seed)
    policy = random.choice(["commit", "never"])
    settings = {"log.flush.policy": policy, "transaction.state.log.num.partitions": "2"}
    simulation = Simulation(random.getrandbits(64), settings=settings)
    committers = [Committer(number) for number in range(COMMITTERS)]
    clients: list[SimClient] = [*committers, Reader(committers)]
    simulation.run_broker(lambda incarnation: create_topic(incarnation, len(PARTITIONS)))
    # Without a flush before the acknowledgement, a power failure may lose acknowledged records, as in Kafka.
    shutdown_kinds = ["kill", "stop", "power"] if policy == "commit" else ["kill", "stop"]
    for _ in range(RESTARTS):
        run_until_shutdown(simulation, clients, random, shutdown_kinds)

    before = [committer.ledger.commits for committer in committers]
    deadlines: list[float] = []

    def has_progressed(now: float) -> bool:
        if not deadlines:
            deadlines.append(now + SETTLE_SECONDS_MAX)
        assert now < deadlines[0], "no progress"
        commits = zip(committers, before, strict=True)
        return all(committer.ledger.commits >= count + COMMITS_AT_END for committer, count in commits)

    simulation.run_broker(lambda incarnation: run_clients(incarnation, clients, has_progressed))
