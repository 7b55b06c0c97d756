"""Batches of transactions on their way into a log: which may go on, and which need a word of the coordinator.

    the producer has a transaction open in this partition ──► written like any other batch
    else ──► a guard is set, the coordinator is asked ──► says yes, and the guard still stands ──► written
                 ▲                                   └──► the transaction before is being ended ──┐
                 └─────────────── a moment later, a few times ◄───────────────────────────────────┘

Without that question a batch which was delayed on the network would begin a transaction that nobody ends, and
readers of committed records would wait for ever (KIP-890).
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct as Layout
from typing import TYPE_CHECKING

from runnel.broker.runtime.partition import Partition
from runnel.broker.runtime.promise import Promise
from runnel.log.producers import Guard
from runnel.messages.produce import PartitionProduceResponse
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import TopicPartition
from runnel.ports.disk import Staged

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker

log = logging.getLogger("runnel.broker")

ADDS_FROM = 12
"""From this version of Produce on, partitions join a transaction through their first batch."""
ABORTABLE_FROM = 11
"""Older producers do not know TRANSACTION_ABORTABLE."""

ASK_AGAIN_MS = 20
ASK_FOR_MS = 100
"""Kafka's add.partitions.to.txn.retry.backoff.ms and .max.ms: how long the end of the last one may take."""

HEADER_BYTES = 61
_MAGIC_POSITION = 16
_MAGIC = 2
_PRODUCER_POSITION = 43
_PRODUCER = Layout(">qhi").unpack_from

_SEEN_AS = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    # Producers retry this one without a look at the metadata, which would not help.
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_ENOUGH_REPLICAS,
}


@dataclass(slots=True)
class Unverified:
    """A batch that may begin a transaction once the coordinator has said so."""

    partition: Partition
    result: PartitionProduceResponse
    records: memoryview
    """A copy: what the request lent is given back at the end of the turn."""
    producer_id: int
    epoch: int
    sequence: int
    guard: Guard


def needs_no_question(records: memoryview, partition: Partition) -> bool:
    """May a transactional batch be written at once? What is no batch at all is left to the log to judge."""
    if len(records) < HEADER_BYTES or records[_MAGIC_POSITION] != _MAGIC:
        return True
    producer_id, epoch, _ = _PRODUCER(records, _PRODUCER_POSITION)
    return producer_id < 0 or partition.log.has_open_transaction(producer_id, epoch)


class Verification:
    """The batches of one request that wait for the coordinator."""

    __slots__ = ("_batches", "_broker", "_deadline_ms", "_transactional_id", "_version", "_written")

    def __init__(
        self,
        broker: "Broker",
        transactional_id: str,
        version: int,
        written: Callable[[Unverified, Staged | ApiError], None],
    ) -> None:
        self._broker = broker
        self._transactional_id = transactional_id
        self._version = version
        self._written = written
        """Told where each batch went, or why it did not."""
        self._batches: list[Unverified] = []
        self._deadline_ms = broker.clock.monotonic_ms() + ASK_FOR_MS

    def add(self, records: memoryview, partition: Partition, result: PartitionProduceResponse) -> None:
        """Let this batch wait. Raises ApiError."""
        producer_id, epoch, sequence = _PRODUCER(records, _PRODUCER_POSITION)
        if self._batches and (producer_id, epoch) != (self._batches[0].producer_id, self._batches[0].epoch):
            raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "a request is of one producer only")
        guard = partition.log.guard_transaction(producer_id, epoch, sequence, self._broker.clock.now_ms())
        copy = memoryview(bytearray(records))
        self._batches.append(Unverified(partition, result, copy, producer_id, epoch, sequence, guard))

    def start(self) -> None:
        """Ask; all batches are written or refused when the answer comes, which may be now."""
        first = self._batches[0]
        names = [batch.partition.name for batch in self._batches]
        answer: dict[TopicPartition, ErrorCode] | Promise[dict[TopicPartition, ErrorCode]] | Exception
        try:
            answer = self._broker.transactions.verify(
                self._transactional_id, first.producer_id, first.epoch, names, self._adds
            )
        except Exception as error:  # noqa: BLE001 - `_answered` logs it, and no connection waits for ever
            answer = error
        if isinstance(answer, Promise):
            answer.on_settled(self._answered)
        else:
            self._answered(answer)

    @property
    def has_batches(self) -> bool:
        return bool(self._batches)

    @property
    def _adds(self) -> bool:
        return self._version >= ADDS_FROM

    def _answered(self, answer: dict[TopicPartition, ErrorCode] | Exception) -> None:
        errors: dict[TopicPartition, ErrorCode]
        if isinstance(answer, dict):
            errors = answer
        else:
            error = ErrorCode.UNKNOWN_SERVER_ERROR
            if isinstance(answer, ApiError):
                error = answer.error
            else:
                log.error("the transaction coordinator failed", exc_info=answer)
            errors = dict.fromkeys((batch.partition.name for batch in self._batches), error)
        if self._is_too_early(errors):
            self._broker.timers.call_later(ASK_AGAIN_MS, self.start)
            return
        for batch in self._batches:
            outcome: Staged | ApiError
            try:
                outcome = self._write(batch, errors.get(batch.partition.name, ErrorCode.NONE))
            except ApiError as api_error:
                outcome = api_error
            self._written(batch, outcome)

    def _is_too_early(self, errors: dict[TopicPartition, ErrorCode]) -> bool:
        """Is the producer's last transaction still being ended, and will that be over soon?"""
        is_busy = self._adds and ErrorCode.CONCURRENT_TRANSACTIONS in errors.values()
        return is_busy and self._broker.clock.monotonic_ms() + ASK_AGAIN_MS <= self._deadline_ms

    def _write(self, batch: Unverified, error: ErrorCode) -> Staged:
        partition = batch.partition
        if error is not ErrorCode.NONE:
            why = f"{partition.name} is not in the transaction of producer {batch.producer_id}: {error.name}"
            raise ApiError(self._seen_as(error), why)
        if self._broker.partition(*partition.name) is not partition:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition.name} is another one now")
        if not partition.log.has_open_transaction(batch.producer_id, batch.epoch):
            partition.log.check_guard(batch.guard, batch.sequence, needs_start=self._adds)
        return partition.stage(batch.records, self._broker.clock.now_ms())

    def _seen_as(self, error: ErrorCode) -> ErrorCode:
        if error is ErrorCode.CONCURRENT_TRANSACTIONS and not self._adds:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        if error is ErrorCode.TRANSACTION_ABORTABLE and self._version < ABORTABLE_FROM:
            return ErrorCode.INVALID_TXN_STATE
        return _SEEN_AS.get(error, error)
