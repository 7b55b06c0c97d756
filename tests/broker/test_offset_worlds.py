"""Offsets in transactions in simulated worlds: the broker dies, loses power, runs out of disk; lines break.

One seed is one world. A mover moves the offsets of two groups together, transaction by transaction; whoever
reads stable offsets finds those of one whole transaction, never of an aborted one, and never older ones than
were acknowledged.
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
from runnel.sim.actors import TOPIC, Actor, found_topic
from runnel.sim.network import Line
from runnel.sim.world import Life, World
from tests.broker.lives import act, live_and_die

GROUPS = ["workers", "shipping"]
"""Their records stand in different partitions."""
PARTITIONS = range(3)
MOVERS = 2
LIVES = 5
SETTLE_SECONDS_MAX = 60.0
MOVES_TO_SETTLE = 5
GROUP_TYPE, TRANSACTION_TYPE = 0, 1


@dataclass
class Ledger:
    """What one mover has done and was told."""

    acknowledged: int = -1
    """The last transaction that was said to be committed."""
    possible: set[int] = field(default_factory=lambda: {-1})
    """Every transaction that somebody asked to commit."""
    moves: int = 0

    def check(self, found: int, acknowledged: int) -> None:
        assert found in self.possible, f"{found} was never to be committed"
        assert found >= acknowledged, f"{acknowledged} was acknowledged, {found} is there"


class Mover(Actor):
    """Moves all offsets of its partitions to the same number, in transactions; it outlives the broker."""

    def __init__(self, number: int) -> None:
        self.name = f"mover-{number}"
        self.groups = [f"{group}-{number}" for group in GROUPS]
        self.ledger = Ledger()
        self.identity: tuple[int, int] | None = None
        self.last = -1

    async def speak(self, line: Line, life: Life) -> None:
        await self.find(line)
        if self.identity is None:
            await self.begin(line)
        else:
            await self.move(line, life)

    async def find(self, line: Line) -> None:
        for kind, names in ((GROUP_TYPE, self.groups), (TRANSACTION_TYPE, [self.name])):
            await line.ask(
                FindCoordinatorRequest(key_type=kind, coordinator_keys=names), FindCoordinatorResponse
            )

    async def begin(self, line: Line) -> None:
        """Take an identity, which ends whatever was left open, and look what has become of it."""
        answer = await line.ask(InitProducerIdRequest(self.name, 60_000), InitProducerIdResponse)
        if answer.error_code:
            return
        found = {await read(line, group, self.ledger) for group in self.groups}
        if None not in found:
            assert len(found) == 1, f"one transaction left the groups of {self.name} at {found}"
            self.identity = answer.producer_id, answer.producer_epoch

    async def move(self, line: Line, life: Life) -> None:
        assert self.identity is not None
        self.last += 1
        identity, self.identity = self.identity, None
        for group in self.groups:
            if not await self.commit(line, group, identity):
                return
        is_commit = life.random.random() < 0.7
        if is_commit:
            self.ledger.possible.add(self.last)
        answer = await line.ask(EndTxnRequest(self.name, *identity, is_commit), EndTxnResponse)
        if answer.error_code:
            return
        if is_commit:
            self.ledger.acknowledged = self.last
        self.ledger.moves += 1
        if life.random.random() < 0.8:
            self.identity = answer.producer_id, answer.producer_epoch

    async def commit(self, line: Line, group: str, identity: tuple[int, int]) -> bool:
        parts = [TxnOffsetCommitRequestPartition(index, self.last) for index in PARTITIONS]
        topics = [TxnOffsetCommitRequestTopic(TOPIC, parts)]
        while True:
            request = TxnOffsetCommitRequest(self.name, group, *identity, topics=topics)
            answer = await line.ask(request, TxnOffsetCommitResponse)
            codes = {part.error_code for topic in answer.topics for part in topic.partitions}
            if codes != {ErrorCode.CONCURRENT_TRANSACTIONS.code}:
                return codes == {ErrorCode.NONE.code}


class Reader(Actor):
    """Reads what is stable, at any time."""

    def __init__(self, movers: list[Mover]) -> None:
        self.movers = movers

    async def speak(self, line: Line, life: Life) -> None:
        mover = life.random.choice(self.movers)
        await mover.find(line)
        await read(line, life.random.choice(mover.groups), mover.ledger)


async def read(line: Line, group: str, ledger: Ledger) -> int | None:
    """Where all partitions of a group stand; None if that is not known now."""
    acknowledged = ledger.acknowledged
    topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=list(PARTITIONS))]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=topics)], require_stable=True)
    answer = (await line.ask(request, OffsetFetchResponse)).groups[0]
    if answer.error_code:
        return None
    parts = answer.topics[0].partitions
    errors = {part.error_code for part in parts}
    assert errors in ({ErrorCode.NONE.code}, {ErrorCode.UNSTABLE_OFFSET_COMMIT.code}), "half a transaction"
    if errors != {ErrorCode.NONE.code}:
        return None
    found = {part.committed_offset for part in parts}
    assert len(found) == 1, f"half a transaction: {found}"
    ledger.check(parts[0].committed_offset, acknowledged)
    return parts[0].committed_offset


@pytest.mark.parametrize("seed", range(6))
def test_offsets_move_by_whole_transactions_through_crashes(seed: int) -> None:
    luck = Random(seed)
    policy = luck.choice(["commit", "never"])
    settings = {"log.flush.policy": policy, "transaction.state.log.num.partitions": "2"}
    world = World(luck.getrandbits(64), settings=settings)
    movers = [Mover(number) for number in range(MOVERS)]
    actors: list[Actor] = [*movers, Reader(movers)]
    world.live(lambda life: found_topic(life, len(PARTITIONS)))
    # Without a sync before each acknowledgement a power cut may take what was acknowledged, as with Kafka.
    ways_to_die = ["kill", "stop", "power"] if policy == "commit" else ["kill", "stop"]
    for _ in range(LIVES):
        live_and_die(world, actors, luck, ways_to_die)

    before = [mover.ledger.moves for mover in movers]
    deadlines: list[float] = []

    def has_moved_on(now: float) -> bool:
        if not deadlines:
            deadlines.append(now + SETTLE_SECONDS_MAX)
        assert now < deadlines[0], "a transaction is stuck"
        moves = zip(movers, before, strict=True)
        return all(mover.ledger.moves >= count + MOVES_TO_SETTLE for mover, count in moves)

    world.live(lambda life: act(life, actors, has_moved_on))
