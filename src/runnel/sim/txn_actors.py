"""Clients of a simulated broker that write in transactions, copy in transactions, or read what is committed.

Each transaction is a script of requests. A script outlives lines and brokers: the request that got no answer
is asked again in the broker's next life, as a client does whose connection broke. Now and then a request
arrives once more much later, on another line.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any

from runnel.batch.build import build_batch
from runnel.batch.records import Record
from runnel.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from runnel.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from runnel.messages.end_txn import EndTxnRequest, EndTxnResponse
from runnel.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from runnel.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from runnel.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from runnel.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from runnel.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from runnel.model.errors import ErrorCode
from runnel.sim.actors import Actor
from runnel.sim.history import Anomaly
from runnel.sim.network import Line, LineCut
from runnel.sim.txn_history import COPIES, SOURCE, Attempt, TransactionHistory
from runnel.sim.txn_reading import committed_records, fetch_committed
from runnel.sim.world import Life
from runnel.wire import Request, Response

TIMEOUT_MS = 1500
ABORT_CHANCE = 0.2
ABANDON_CHANCE = 0.05
REPLAY_CHANCE = 0.05
REPLAY_SECONDS_MAX = 3.0
TRANSACTION_KEY = 1
GROUP = "copiers"


class Refused(Exception):
    """The broker will not have it; the script ends here."""


@dataclass(slots=True)
class Step:
    """A question, where its errors stand in the answer, and whether it may arrive again later."""

    request: Request
    answer: type[Response]
    errors: Callable[[Any], list[int]]
    is_replayable: bool = True


Script = Generator[Step, Any, None]


class Scripted(Actor):
    """Somebody whose requests form scripts that go on across lines and lives."""

    retreat_seconds = 0.0
    """How long to stay away after a refusal, at most."""

    def __init__(self, history: TransactionHistory, *, is_classic: bool) -> None:
        self.history = history
        self.is_classic = is_classic
        self.is_resting = False
        self.now_ms = 0
        self._script: Script | None = None
        self._step: Step | None = None
        self._replays: set[asyncio.Task[None]] = set()

    @abstractmethod
    def script(self, random: Random) -> Script:
        """What to ask, from an answer to the next question."""

    async def speak(self, line: Line, life: Life) -> None:
        self.now_ms = life.clock.now_ms()
        if self._script is None or self._step is None:
            if self.is_resting:
                return
            self._script = self.script(life.random)
            self._step = next(self._script)
        step = self._step
        if step.is_replayable and life.random.random() < REPLAY_CHANCE:
            self._replay_later(step, life)
        answer = await line.ask(step.request, step.answer)
        errors = [ErrorCode.from_code(code) for code in step.errors(answer) if code]
        if any(error.retriable for error in errors):
            return
        try:
            if errors:
                self.history.refusals[f"{type(step.request).__name__}: {errors[0].name}"] += 1
                self._script.throw(Refused(errors[0].name))
            else:
                self._step = self._script.send(answer)
        except (StopIteration, Refused) as end:
            self._script = None
            if isinstance(end, Refused):
                await asyncio.sleep(life.random.random() * self.retreat_seconds)

    def _replay_later(self, step: Step, life: Life) -> None:
        delay_seconds = life.random.random() ** 2 * REPLAY_SECONDS_MAX

        async def replay() -> None:
            await asyncio.sleep(delay_seconds)
            with suppress(LineCut):
                line = await life.line(is_classic=self.is_classic)
                await line.ask(step.request, step.answer)

        task = asyncio.ensure_future(replay())
        self._replays.add(task)
        task.add_done_callback(self._replays.discard)


class Transactor(Scripted):
    """Somebody with a transactional id."""

    def __init__(
        self, name: str, transactional_id: str, history: TransactionHistory, *, is_classic: bool
    ) -> None:
        super().__init__(history, is_classic=is_classic)
        self.name = name
        self.transactional_id = transactional_id
        self._producer_id = self._epoch = -1
        self._sequences: dict[tuple[str, int], int] = {}
        self._attempts = 0
        self._added: set[tuple[str, int]] = set()

    def introduce(self) -> Script:
        """Find the coordinator, and fence whoever had the id before."""
        find = FindCoordinatorRequest(key_type=TRANSACTION_KEY, coordinator_keys=[self.transactional_id])
        yield Step(find, FindCoordinatorResponse, lambda answer: [answer.coordinators[0].error_code])
        request = InitProducerIdRequest(self.transactional_id, TIMEOUT_MS)
        answer = yield Step(request, InitProducerIdResponse, lambda answer: [answer.error_code])
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()

    def begin(self) -> Attempt:
        self._attempts += 1
        self._added.clear()
        return self.history.begin(f"{self.name}.{self._attempts}".encode())

    def write(self, attempt: Attempt, topic: str, partition: int, values: list[bytes]) -> Script:
        """Add the partition if that is still the client's task, and send one batch."""
        place = (topic, partition)
        if self.is_classic and place not in self._added:
            yield self._add(place)
            self._added.add(place)
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = sequence + len(values)
        attempt.size += len(values)
        batch = build_batch(
            (Record(0, self.now_ms, None, value) for value in values),
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(partition, batch)])
        request = ProduceRequest(self.transactional_id, -1, 30_000, [data])
        yield Step(
            request, ProduceResponse, lambda answer: [answer.responses[0].partition_responses[0].error_code]
        )

    def _add(self, place: tuple[str, int]) -> Step:
        topics = [AddPartitionsToTxnTopic(place[0], [place[1]])]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=topics,
        )
        return Step(
            request,
            AddPartitionsToTxnResponse,
            lambda answer: [
                answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            ],
        )

    def end(self, attempt: Attempt, *, is_commit: bool, is_copy: bool) -> Script:
        attempt.is_commit_asked = is_commit
        request = EndTxnRequest(self.transactional_id, self._producer_id, self._epoch, is_commit)
        # An end that arrives late ends the next transaction of a classic client: why KIP-890 came to be.
        answer = yield Step(
            request, EndTxnResponse, lambda answer: [answer.error_code], is_replayable=not self.is_classic
        )
        if is_commit:
            self.history.committed(attempt, is_copy=is_copy)
        else:
            attempt.is_aborted = True
        if not self.is_classic:
            self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
            self._sequences.clear()


class TransactionalProducer(Transactor):
    """Writes numbered values to all partitions of the source; aborts some, and leaves some lying about."""

    def __init__(self, name: str, partitions: int, history: TransactionHistory, *, is_classic: bool) -> None:
        super().__init__(name, f"id-{name}", history, is_classic=is_classic)
        self.partitions = partitions
        self.sent = 0

    def script(self, random: Random) -> Script:
        yield from self.introduce()
        for _ in range(random.randint(1, 30)):
            if self.is_resting:
                return
            attempt = self.begin()
            for _ in range(random.randint(1, 4)):
                values = [self._next(attempt) for _ in range(random.randint(1, 5))]
                yield from self.write(attempt, SOURCE, random.randrange(self.partitions), values)
            luck = random.random()
            if luck < ABANDON_CHANCE:
                return
            yield from self.end(attempt, is_commit=luck > ABANDON_CHANCE + ABORT_CHANCE, is_copy=False)

    def _next(self, attempt: Attempt) -> bytes:
        self.sent += 1
        return b"%s:%d:%s" % (self.name.encode(), self.sent, attempt.name)


class Copier(Transactor):
    """Copies one partition of the source, and moves the group's offset in the same transaction.

    Two of them share a transactional id: whoever came last works, the other is a zombie until it finds out.
    """

    def __init__(self, name: str, partition: int, history: TransactionHistory, *, is_classic: bool) -> None:
        super().__init__(name, f"copier-{partition}", history, is_classic=is_classic)
        self.partition = partition
        self.position = 0

    # The other one shall have a chance.
    retreat_seconds = 2.0

    def script(self, random: Random) -> Script:
        yield from self.introduce()
        yield from self._find_position()
        for _ in range(random.randint(1, 40)):
            answer = yield fetch_step(SOURCE, self.partition, self.position)
            data = answer.responses[0].partitions[0]
            records, self.position = committed_records(data, self.position)
            if not records:
                continue
            for offset, value in records:
                self.history.show((SOURCE, self.partition), offset, value)
            if self.is_resting and random.random() < 0.5:
                return
            yield from self._copy(records, random)

    def _copy(self, records: list[tuple[int, bytes]], random: Random) -> Script:
        begun_at = records[0][0]
        attempt = self.begin()
        values = [b"%s>%s" % (value, attempt.name) for _, value in records]
        yield from self.write(attempt, COPIES, self.partition, values)
        yield from self._move()
        luck = random.random()
        if luck < ABANDON_CHANCE:
            raise Refused("abandoned")
        is_commit = luck > ABANDON_CHANCE + ABORT_CHANCE
        yield from self.end(attempt, is_commit=is_commit, is_copy=True)
        if is_commit:
            self.history.moved[self.partition] = max(self.history.moved[self.partition], self.position)
        else:
            self.position = begun_at

    def _find_position(self) -> Script:
        find = FindCoordinatorRequest(coordinator_keys=[GROUP])
        yield Step(find, FindCoordinatorResponse, lambda answer: [answer.coordinators[0].error_code])
        at_least = self.history.moved[self.partition]
        answer = yield offset_step(self.partition)
        self.position = max(answer.groups[0].topics[0].partitions[0].committed_offset, 0)
        if self.position < at_least:
            raise Anomaly(f"the group was at {at_least} in {self.partition}, and is told {self.position}")

    def _move(self) -> Script:
        if self.is_classic:
            add = AddOffsetsToTxnRequest(self.transactional_id, self._producer_id, self._epoch, GROUP)
            yield Step(add, AddOffsetsToTxnResponse, lambda answer: [answer.error_code])
        partition = TxnOffsetCommitRequestPartition(self.partition, self.position)
        request = TxnOffsetCommitRequest(
            self.transactional_id,
            GROUP,
            self._producer_id,
            self._epoch,
            topics=[TxnOffsetCommitRequestTopic(SOURCE, [partition])],
        )
        # A late one moves the offset within a classic client's next transaction.
        yield Step(
            request,
            TxnOffsetCommitResponse,
            lambda answer: [answer.topics[0].partitions[0].error_code],
            is_replayable=not self.is_classic,
        )


def fetch_step(topic: str, partition: int, position: int) -> Step:
    request, answer = fetch_committed(topic, partition, position)
    return Step(request, answer, lambda answer: [answer.responses[0].partitions[0].error_code], False)


def offset_step(partition: int) -> Step:
    """Where the group stands, once no transaction can change it any more."""
    topics = [OffsetFetchRequestTopics(name=SOURCE, partition_indexes=[partition])]
    group = OffsetFetchRequestGroup(GROUP, topics=topics)
    return Step(
        OffsetFetchRequest(groups=[group], require_stable=True),
        OffsetFetchResponse,
        lambda answer: [
            answer.groups[0].error_code,
            *(part.error_code for topic in answer.groups[0].topics for part in topic.partitions),
        ],
        False,
    )
