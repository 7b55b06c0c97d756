"""Telling the partitions: once the end of a transaction is committed, each of them gets a marker.

Prepared ──committed──▶ WriteMarkers ──one by one──▶ marked ──the last one──▶ Complete
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from runnel.coordinator.contract import Decision, Moment, Order, Timer
from runnel.coordinator.txn.ending import Prepared
from runnel.coordinator.txn.ledger import Ledger, Marking
from runnel.coordinator.txn.records import transaction_record
from runnel.coordinator.txn.settings import RETRY_MS
from runnel.coordinator.txn.transaction import (
    NO_PRODUCER_ID,
    PREPARED,
    Transaction,
    TransactionState,
)
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition


@dataclass(slots=True)
class WriteMarkers(Order):
    """Write the end of a transaction into these partitions, until each has it or is gone."""

    ended: Prepared
    is_commit: bool
    transaction_version: int
    partitions: tuple[TopicPartition, ...]


@dataclass(slots=True)
class Completed:
    """All markers of this transaction are written, which the log shall say."""

    transactional_id: str


_MARKED = frozenset(
    {
        ErrorCode.NONE,
        # The topic was deleted, and its part of the transaction with it.
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        # The partition has seen a later epoch of this producer, hence the end of this one.
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
"""After these a partition needs no marker any more."""


def prepared_token(transaction: Transaction) -> Prepared:
    return Prepared(transaction.id, transaction.producer_id, transaction.epoch)


def write_markers(ledger: Ledger, ended: Prepared, now: Moment) -> Decision[None]:
    """The end of a transaction is committed: nothing but its markers is left to do."""
    transaction = _still_prepared(ledger, ended)
    if transaction is None or transaction.id in ledger.markings:
        return Decision()
    ledger.markings[transaction.id] = Marking(set(transaction.partitions))
    if not transaction.partitions:
        return _complete(ledger, transaction, now)
    return _ordered(transaction, transaction.partitions)


def marked(
    ledger: Ledger, ended: Prepared, partition: TopicPartition, error: ErrorCode, now: Moment
) -> Decision[None]:
    """A partition has its marker, or will never need one; or it could not be written."""
    transaction = _still_prepared(ledger, ended)
    marking = ledger.markings.get(ended.transactional_id)
    if transaction is None or marking is None or partition not in marking.under_way:
        return Decision()
    if error is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
        # Another coordinator has this transaction now, and will complete it.
        return Decision()
    marking.under_way.remove(partition)
    if error not in _MARKED:
        marking.failed.add(partition)
        decision = Decision[None]()
        decision.set_timer(_retry(transaction.id), RETRY_MS)
        return decision
    return _complete(ledger, transaction, now) if marking.is_done else Decision()


def completed(completion: Completed, error: ErrorCode | None) -> Decision[None]:
    """The log has taken the completion; if not, it is offered again, as the id is of no use before."""
    decision = Decision[None]()
    if error is not None:
        decision.set_timer(_retry(completion.transactional_id), RETRY_MS)
    return decision


def write_again(ledger: Ledger, transactional_id: str, now: Moment) -> Decision[None]:
    """Try once more what failed: markers, or to say that all are written."""
    marking = ledger.markings.get(transactional_id)
    if marking is None:
        return Decision()
    transaction = ledger.transactions[transactional_id]
    if marking.is_done:
        return _complete(ledger, transaction, now)
    failed, marking.failed = marking.failed, set()
    marking.under_way |= failed
    return _ordered(transaction, failed) if failed else Decision()


def _retry(transactional_id: str) -> Timer:
    return Timer("markers", transactional_id)


def _ordered(transaction: Transaction, partitions: Collection[TopicPartition]) -> Decision[None]:
    decision = Decision[None]()
    decision.order(
        WriteMarkers(
            prepared_token(transaction),
            transaction.is_committing,
            transaction.client_version,
            tuple(sorted(partitions)),
        )
    )
    return decision


def _complete(ledger: Ledger, transaction: Transaction, now: Moment) -> Decision[None]:
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
    record = transaction_record(done, ledger.settings.transaction_version)
    return Decision(records=[record], then=Completed(transaction.id))


def _still_prepared(ledger: Ledger, ended: Prepared) -> Transaction | None:
    transaction = ledger.transactions.get(ended.transactional_id)
    if transaction is None or transaction.state not in PREPARED or prepared_token(transaction) != ended:
        return None
    return transaction
