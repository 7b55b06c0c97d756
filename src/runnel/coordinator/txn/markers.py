"""Writing transaction markers once the prepare record is committed.

Prepared ──committed──▶ WriteMarkers ──one by one──▶ marked ──the last one──▶ Complete
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from runnel.coordinator.contract import CoordinatorResult, Moment, ShardEffect, Timer
from runnel.coordinator.txn.end_txn import Prepared
from runnel.coordinator.txn.records import transaction_record
from runnel.coordinator.txn.store import PendingMarkers, TransactionStore
from runnel.coordinator.txn.transaction import (
    NO_PRODUCER_ID,
    PREPARED,
    Transaction,
    TransactionState,
)
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition


@dataclass(slots=True)
class WriteMarkers(ShardEffect):
    """Write the markers of a transaction to these partitions, retrying until each is written or deleted."""

    ended: Prepared
    is_commit: bool
    transaction_version: int
    partitions: tuple[TopicPartition, ...]


@dataclass(slots=True)
class Completed:
    """Continuation: the completion of a transaction was written."""

    transactional_id: str


_MARKED = frozenset(
    {
        ErrorCode.NONE,
        # The topic was deleted.
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        # The partition has a later epoch of this producer, so the transaction has ended there.
        ErrorCode.INVALID_PRODUCER_EPOCH,
        # The partition cannot hold transactions.
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
"""Results after which a partition needs no marker."""


def prepared_token(transaction: Transaction) -> Prepared:
    return Prepared(transaction.id, transaction.producer_id, transaction.epoch)


def write_markers(store: TransactionStore, ended: Prepared, now: Moment) -> CoordinatorResult[None]:
    """Start writing the markers of a transaction whose prepare record is committed."""
    transaction = _still_prepared(store, ended)
    if transaction is None or transaction.id in store.pending_markers:
        return CoordinatorResult()
    store.pending_markers[transaction.id] = PendingMarkers(set(transaction.partitions))
    if not transaction.partitions:
        return _complete(store, transaction, now)
    return _write_markers(transaction, transaction.partitions)


def marked(
    store: TransactionStore, ended: Prepared, partition: TopicPartition, error: ErrorCode, now: Moment
) -> CoordinatorResult[None]:
    """Handle the result of writing the marker of one partition."""
    transaction = _still_prepared(store, ended)
    pending = store.pending_markers.get(ended.transactional_id)
    if transaction is None or pending is None or partition not in pending.in_flight:
        return CoordinatorResult()
    if error is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
        # Another coordinator has taken over, and completes the transaction.
        return CoordinatorResult()
    pending.in_flight.remove(partition)
    if error not in _MARKED:
        pending.failed.add(partition)
        result = CoordinatorResult[None]()
        result.set_timer(_retry_timer(transaction.id), pending.retry_delay_ms)
        return result
    return _complete(store, transaction, now) if pending.is_done else CoordinatorResult()


def completed(
    store: TransactionStore, completion: Completed, error: ErrorCode | None
) -> CoordinatorResult[None]:
    """Retry if the append failed: the transactional id is not usable before."""
    result = CoordinatorResult[None]()
    pending = store.pending_markers.get(completion.transactional_id)
    if error is not None and pending is not None:
        result.set_timer(_retry_timer(completion.transactional_id), pending.retry_delay_ms)
    return result


def retry_markers(store: TransactionStore, transactional_id: str, now: Moment) -> CoordinatorResult[None]:
    """Retry failed markers, or the completion record."""
    pending = store.pending_markers.get(transactional_id)
    if pending is None:
        return CoordinatorResult()
    pending.retries += 1
    transaction = store.transactions[transactional_id]
    if pending.is_done:
        return _complete(store, transaction, now)
    failed, pending.failed = pending.failed, set()
    pending.in_flight |= failed
    return _write_markers(transaction, failed) if failed else CoordinatorResult()


def _retry_timer(transactional_id: str) -> Timer:
    return Timer("markers", transactional_id)


def _write_markers(
    transaction: Transaction, partitions: Collection[TopicPartition]
) -> CoordinatorResult[None]:
    result = CoordinatorResult[None]()
    result.add_effect(
        WriteMarkers(
            prepared_token(transaction),
            transaction.is_committing,
            transaction.client_version,
            tuple(sorted(partitions)),
        )
    )
    return result


def _complete(store: TransactionStore, transaction: Transaction, now: Moment) -> CoordinatorResult[None]:
    is_commit = transaction.is_committing
    done = replace(
        transaction,
        state=TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
        partitions=frozenset(),
        previous_producer_id=transaction.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        updated_ms=now.wall_ms,
    )
    if transaction.next_producer_id != NO_PRODUCER_ID:
        done.producer_id, done.epoch = transaction.next_producer_id, 0
    record = transaction_record(done, store.settings.transaction_version)
    return CoordinatorResult(records=[record], continuation=Completed(transaction.id))


def _still_prepared(store: TransactionStore, ended: Prepared) -> Transaction | None:
    transaction = store.transactions.get(ended.transactional_id)
    if transaction is None or transaction.state not in PREPARED or prepared_token(transaction) != ended:
        return None
    return transaction
