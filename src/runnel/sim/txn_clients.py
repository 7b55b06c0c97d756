"""Clients of a simulated broker that produce and copy in transactions.

Each transaction is a script of requests. A script survives lost connections and crashes of the broker: a
request without a response is retried, as clients do. Occasionally a duplicate of a request arrives much
later, on another connection.
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
from runnel.sim.clients import SimClient
from runnel.sim.history import Anomaly
from runnel.sim.txn_history import COPIES, SOURCE, Attempt, TransactionHistory
from runnel.sim.txn_reading import committed_records, fetch_committed
from runnel.sim.world import Connection, ConnectionLost, World
from runnel.wire import Request, Response

TIMEOUT_MS = 1500
ABORT_CHANCE = 0.2
ABANDON_CHANCE = 0.05
DUPLICATE_CHANCE = 0.05
DUPLICATE_SECONDS_MAX = 3.0
TRANSACTION_KEY = 1
GROUP = "copiers"


class Rejected(Exception):
    """The broker returned a fatal error; the script ends."""


@dataclass(slots=True)
class Step:
    """A request, the error codes of its response, and whether a delayed duplicate is allowed."""

    request: Request
    answer: type[Response]
    errors: Callable[[Any], list[int]]
    may_be_duplicated: bool = True


Script = Generator[Step, Any, None]


class ScriptedClient(SimClient):
    """A client whose requests form scripts that survive connections and crashes."""

    backoff_seconds_max = 0.0
    """Maximum back-off after a fatal error."""

    def __init__(self, history: TransactionHistory, *, is_classic: bool) -> None:
        self.history = history
        self.is_classic = is_classic
        self.is_draining = False
        self.now_ms = 0
        self._script: Script | None = None
        self._step: Step | None = None
        self._duplicates: set[asyncio.Task[None]] = set()

    @abstractmethod
    def script(self, random: Random) -> Script:
        """A generator of requests that receives their responses."""

    async def run_once(self, connection: Connection, world: World) -> None:
        self.now_ms = world.clock.now_ms()
        if self._script is None or self._step is None:
            if self.is_draining:
                return
            self._script = self.script(world.random)
            self._step = next(self._script)
        step = self._step
        if step.may_be_duplicated and world.random.random() < DUPLICATE_CHANCE:
            self._duplicate_later(step, world)
        answer = await connection.ask(step.request, step.answer)
        errors = [ErrorCode.from_code(code) for code in step.errors(answer) if code]
        if any(error.retriable for error in errors):
            return
        try:
            if errors:
                self.history.rejections[f"{type(step.request).__name__}: {errors[0].name}"] += 1
                self._script.throw(Rejected(errors[0].name))
            else:
                self._step = self._script.send(answer)
        except (StopIteration, Rejected) as end:
            self._script = None
            if isinstance(end, Rejected):
                await asyncio.sleep(world.random.random() * self.backoff_seconds_max)

    def _duplicate_later(self, step: Step, world: World) -> None:
        delay_seconds = world.random.random() ** 2 * DUPLICATE_SECONDS_MAX

        async def duplicate() -> None:
            await asyncio.sleep(delay_seconds)
            with suppress(ConnectionLost):
                connection = await world.connect(is_classic=self.is_classic)
                await connection.ask(step.request, step.answer)

        task = asyncio.ensure_future(duplicate())
        self._duplicates.add(task)
        task.add_done_callback(self._duplicates.discard)


class TransactionalClient(ScriptedClient):
    """A client with a transactional id."""

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

    def init_producer(self) -> Script:
        """Find the coordinator and fence the previous producer of the transactional id."""
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
        """Add the partition if the client is classic, and produce one batch."""
        key = (topic, partition)
        if self.is_classic and key not in self._added:
            yield self._add(key)
            self._added.add(key)
        sequence = self._sequences.get(key, 0)
        self._sequences[key] = sequence + len(values)
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

    def _add(self, key: tuple[str, int]) -> Step:
        topics = [AddPartitionsToTxnTopic(key[0], [key[1]])]
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
        attempt.is_commit_requested = is_commit
        request = EndTxnRequest(self.transactional_id, self._producer_id, self._epoch, is_commit)
        # A delayed EndTxn would end the next transaction of a classic client, which KIP-890 prevents.
        answer = yield Step(
            request, EndTxnResponse, lambda answer: [answer.error_code], may_be_duplicated=not self.is_classic
        )
        if is_commit:
            self.history.committed(attempt, is_copy=is_copy)
        else:
            attempt.is_aborted = True
        if not self.is_classic:
            self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
            self._sequences.clear()


class TransactionalProducer(TransactionalClient):
    """Produces numbered values to all source partitions; aborts some transactions and abandons others."""

    def __init__(self, name: str, partitions: int, history: TransactionHistory, *, is_classic: bool) -> None:
        super().__init__(name, f"id-{name}", history, is_classic=is_classic)
        self.partitions = partitions
        self.sent = 0

    def script(self, random: Random) -> Script:
        yield from self.init_producer()
        for _ in range(random.randint(1, 30)):
            if self.is_draining:
                return
            attempt = self.begin()
            for _ in range(random.randint(1, 4)):
                values = [self._next(attempt) for _ in range(random.randint(1, 5))]
                yield from self.write(attempt, SOURCE, random.randrange(self.partitions), values)
            draw = random.random()
            if draw < ABANDON_CHANCE:
                return
            yield from self.end(attempt, is_commit=draw > ABANDON_CHANCE + ABORT_CHANCE, is_copy=False)

    def _next(self, attempt: Attempt) -> bytes:
        self.sent += 1
        return b"%s:%d:%s" % (self.name.encode(), self.sent, attempt.name)


class Copier(TransactionalClient):
    """Copies one source partition and commits the group's offset in the same transaction.

    Two instances share a transactional id: the last to initialise is active, the other is a zombie.
    """

    def __init__(self, name: str, partition: int, history: TransactionHistory, *, is_classic: bool) -> None:
        super().__init__(name, f"copier-{partition}", history, is_classic=is_classic)
        self.partition = partition
        self.position = 0

    # Gives the other instance a chance.
    backoff_seconds_max = 2.0

    def script(self, random: Random) -> Script:
        yield from self.init_producer()
        yield from self._find_position()
        for _ in range(random.randint(1, 40)):
            answer = yield fetch_step(SOURCE, self.partition, self.position)
            data = answer.responses[0].partitions[0]
            records, self.position = committed_records(data, self.position)
            if not records:
                continue
            for offset, value in records:
                self.history.observe((SOURCE, self.partition), offset, value)
            if self.is_draining and random.random() < 0.5:
                return
            yield from self._copy(records, random)

    def _copy(self, records: list[tuple[int, bytes]], random: Random) -> Script:
        start_offset = records[0][0]
        attempt = self.begin()
        values = [b"%s>%s" % (value, attempt.name) for _, value in records]
        yield from self.write(attempt, COPIES, self.partition, values)
        yield from self._commit_offset()
        draw = random.random()
        if draw < ABANDON_CHANCE:
            raise Rejected("abandoned")
        is_commit = draw > ABANDON_CHANCE + ABORT_CHANCE
        yield from self.end(attempt, is_commit=is_commit, is_copy=True)
        if is_commit:
            self.history.committed_offsets[self.partition] = max(
                self.history.committed_offsets[self.partition], self.position
            )
        else:
            self.position = start_offset

    def _find_position(self) -> Script:
        find = FindCoordinatorRequest(coordinator_keys=[GROUP])
        yield Step(find, FindCoordinatorResponse, lambda answer: [answer.coordinators[0].error_code])
        self.position = yield from committed_offset(self.history, self.partition)

    def _commit_offset(self) -> Script:
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
        # A delayed duplicate would become part of a classic client's next transaction.
        yield Step(
            request,
            TxnOffsetCommitResponse,
            lambda answer: [answer.topics[0].partitions[0].error_code],
            may_be_duplicated=not self.is_classic,
        )


class OffsetReader(ScriptedClient):
    """Reads the offsets that copiers have committed, as a copier that starts does."""

    def __init__(self, partition: int, history: TransactionHistory) -> None:
        super().__init__(history, is_classic=False)
        self.partition = partition

    def script(self, random: Random) -> Script:
        while not self.is_draining:
            yield from committed_offset(self.history, self.partition)


def committed_offset(history: TransactionHistory, partition: int) -> Generator[Step, Any, int]:
    """The group's stable committed offset; not less than what was acknowledged before."""
    at_least = history.committed_offsets[partition]
    answer = yield offset_step(partition)
    offset: int = max(answer.groups[0].topics[0].partitions[0].committed_offset, 0)
    if offset < at_least:
        raise Anomaly(f"committed offset of {partition} decreased from {at_least} to {offset}")
    return offset


def fetch_step(topic: str, partition: int, position: int) -> Step:
    request, answer = fetch_committed(topic, partition, position)
    return Step(request, answer, lambda answer: [answer.responses[0].partitions[0].error_code], False)


def offset_step(partition: int) -> Step:
    """Fetch the group's stable committed offset."""
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
