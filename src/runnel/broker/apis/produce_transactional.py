"""Verification of transactional batches with the transaction coordinator before they are appended (KIP-890).

    the producer has an open transaction in the partition ──► append
    else ──► set a guard, ask the coordinator ──► verified, and the guard is still set ──► append
                 ▲                           ├──► verified, but the guard is gone ──┐
                 │                           └──► CONCURRENT_TRANSACTIONS ──────────┤
                 └───────────────── back off, limited retries ◄─────────────────────┘

The marker of the previous transaction removes the guard. With transaction version 2 the coordinator is asked
again then: each transaction has its own epoch, so the answer cannot be about another one.

Without verification, a batch delayed on the network could start a hanging transaction, which would block the
last stable offset and all read_committed consumers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct as Layout
from typing import TYPE_CHECKING

from runnel.broker.runtime.promise import Promise
from runnel.broker.runtime.replicated_log import ReplicatedLog
from runnel.log.producers import Guard
from runnel.messages.produce import PartitionProduceResponse
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import TopicPartition
from runnel.ports.disk import Staged

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker


ADD_PARTITIONS_VERSION = 12
"""From this Produce version on, the first batch adds its partition to the transaction."""
ABORTABLE_VERSION = 11
"""Producers of older versions do not support TRANSACTION_ABORTABLE."""

RETRY_BACKOFF_MS = 20
RETRY_MAX_MS = 100
"""Kafka's add.partitions.to.txn.retry.backoff.ms and .max.ms."""

HEADER_BYTES = 61
_MAGIC_POSITION = 16
_MAGIC = 2
_PRODUCER_POSITION = 43
_PRODUCER = Layout(">qhi").unpack_from

_CLIENT_ERRORS = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    # Producers retry NOT_ENOUGH_REPLICAS without a metadata update, which would not help.
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_ENOUGH_REPLICAS,
}


@dataclass(slots=True)
class Unverified:
    """A batch whose transaction is being verified."""

    partition: ReplicatedLog
    result: PartitionProduceResponse
    records: memoryview
    """A copy: the request's buffer is released at the end of the turn."""
    producer_id: int
    epoch: int
    sequence: int
    guard: Guard


def is_verified(records: memoryview, partition: ReplicatedLog) -> bool:
    """True if a transactional batch needs no verification. Malformed batches are left to log validation."""
    if len(records) < HEADER_BYTES or records[_MAGIC_POSITION] != _MAGIC:
        return True
    producer_id, epoch, _ = _PRODUCER(records, _PRODUCER_POSITION)
    return producer_id < 0 or partition.log.has_open_transaction(producer_id, epoch)


def _may_begin(batch: Unverified) -> bool:
    """False if the guard was removed since the coordinator was asked."""
    log = batch.partition.log
    return log.has_open_transaction(batch.producer_id, batch.epoch) or log.is_guarded(batch.guard)


class Verification:
    """The batches of one request whose transaction is being verified."""

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
        """Called with the offsets of each batch, or with its error."""
        self._batches: list[Unverified] = []
        self._deadline_ms = broker.clock.monotonic_ms() + RETRY_MAX_MS

    def add(self, records: memoryview, partition: ReplicatedLog, result: PartitionProduceResponse) -> None:
        """Add a batch to verify. Raises ApiError."""
        if not partition.is_leader:
            # Its state of transactions may be stale: the partition would be added needlessly.
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {partition.name}")
        producer_id, epoch, sequence = _PRODUCER(records, _PRODUCER_POSITION)
        if self._batches and (producer_id, epoch) != (self._batches[0].producer_id, self._batches[0].epoch):
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                "all batches must have the same producer id",
            )
        copy = memoryview(bytearray(records))
        guard = self._guard(partition, producer_id, epoch, sequence)
        self._batches.append(Unverified(partition, result, copy, producer_id, epoch, sequence, guard))

    def start(self) -> None:
        """Ask the coordinator; its response, which may be immediate, appends or rejects all batches."""
        first = self._batches[0]
        names = [batch.partition.name for batch in self._batches]
        answer: dict[TopicPartition, ErrorCode] | Promise[dict[TopicPartition, ErrorCode]] | Exception
        try:
            for batch in self._batches:
                # It may have been removed since the last attempt.
                batch.guard = self._guard(batch.partition, batch.producer_id, batch.epoch, batch.sequence)
            answer = self._broker.transactions.verify(
                self._transactional_id, first.producer_id, first.epoch, names, self._adds_partitions
            )
        except Exception as error:  # noqa: BLE001 - `_answered` logs it, and no connection waits forever
            answer = error
        if isinstance(answer, Promise):
            answer.on_settled(self._answered)
        else:
            self._answered(answer)

    def _guard(self, partition: ReplicatedLog, producer_id: int, epoch: int, sequence: int) -> Guard:
        return partition.log.guard_transaction(producer_id, epoch, sequence)

    @property
    def has_batches(self) -> bool:
        return bool(self._batches)

    @property
    def _adds_partitions(self) -> bool:
        return self._version >= ADD_PARTITIONS_VERSION

    def _answered(self, answer: dict[TopicPartition, ErrorCode] | Exception) -> None:
        errors: dict[TopicPartition, ErrorCode]
        if isinstance(answer, dict):
            errors = answer
        else:
            error = ErrorCode.UNKNOWN_SERVER_ERROR
            if isinstance(answer, ApiError):
                error = answer.error
            else:
                self._broker.bugs.report(answer, "the transaction coordinator failed")
            errors = dict.fromkeys((batch.partition.name for batch in self._batches), error)
        if self._is_retriable(errors):
            self._broker.timers.call_later(RETRY_BACKOFF_MS, self.start)
            return
        for batch in self._batches:
            outcome: Staged | ApiError
            try:
                outcome = self._write(batch, errors.get(batch.partition.name, ErrorCode.NONE))
            except ApiError as api_error:
                outcome = api_error
            except Exception as bug:  # noqa: BLE001 - reported; the connection must not wait forever
                self._broker.bugs.report(bug, "%s: a verified batch was not appended", batch.partition.name)
                outcome = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the batch was not appended")
            self._written(batch, outcome)

    def _is_retriable(self, errors: dict[TopicPartition, ErrorCode]) -> bool:
        """True while the previous transaction completes and the retry limit is not reached."""
        is_late = self._broker.clock.monotonic_ms() + RETRY_BACKOFF_MS > self._deadline_ms
        if is_late or not self._adds_partitions:
            return False
        return ErrorCode.CONCURRENT_TRANSACTIONS in errors.values() or any(
            errors.get(batch.partition.name) is ErrorCode.NONE and not _may_begin(batch)
            for batch in self._batches
        )

    def _write(self, batch: Unverified, error: ErrorCode) -> Staged:
        partition = batch.partition
        if error is not ErrorCode.NONE:
            why = f"{partition.name} is not in the transaction of producer {batch.producer_id}: {error.name}"
            raise ApiError(self._client_error(error), why)
        if self._broker.partition(*partition.name) is not partition:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition.name} was recreated")
        if not partition.log.has_open_transaction(batch.producer_id, batch.epoch):
            partition.log.check_guard(batch.guard, batch.sequence, needs_start=self._adds_partitions)
        return partition.stage(batch.records, self._broker.clock.now_ms())

    def _client_error(self, error: ErrorCode) -> ErrorCode:
        if error is ErrorCode.CONCURRENT_TRANSACTIONS and not self._adds_partitions:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        if error is ErrorCode.TRANSACTION_ABORTABLE and self._version < ABORTABLE_VERSION:
            return ErrorCode.INVALID_TXN_STATE
        return _CLIENT_ERRORS.get(error, error)
