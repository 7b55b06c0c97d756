"""Adding partitions to transactions, and verification."""

from collections.abc import Collection
from dataclasses import replace

from runnel.coordinator.contract import CoordinatorResult, Moment
from runnel.coordinator.txn.records import transaction_record
from runnel.coordinator.txn.store import TransactionStore
from runnel.coordinator.txn.transaction import PREPARED, Transaction, TransactionState
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import TopicPartition

AddResult = CoordinatorResult[dict[TopicPartition, ErrorCode]]


def add_partitions(
    store: TransactionStore,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Collection[TopicPartition],
    client_version: int,
    now: Moment,
) -> AddResult:
    """Add partitions to the open transaction, or to a new one. Raises ApiError."""
    known = store.transactions.get(transactional_id)
    if known is not None and known.state in PREPARED:
        # Checked before the producer id, because the client may already use the next one.
        raise _concurrent_transactions(known)
    known = _check_producer(store, transactional_id, producer_id, producer_epoch)
    response = dict.fromkeys(partitions, ErrorCode.NONE)
    is_ongoing = known.state is TransactionState.ONGOING
    if is_ongoing and known.partitions.issuperset(partitions):
        return CoordinatorResult(response)
    extended = replace(
        known,
        state=TransactionState.ONGOING,
        partitions=known.partitions.union(partitions),
        started_ms=known.started_ms if is_ongoing else now.wall_ms,
        updated_ms=now.wall_ms,
        client_version=client_version,
    )
    return CoordinatorResult(
        response, records=[transaction_record(extended, store.settings.transaction_version)]
    )


def verify_partitions(
    store: TransactionStore,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Collection[TopicPartition],
) -> dict[TopicPartition, ErrorCode]:
    """Check for each partition whether it was added to the producer's transaction. Raises ApiError."""
    known = _check_producer(store, transactional_id, producer_id, producer_epoch)
    return {
        partition: ErrorCode.NONE if partition in known.partitions else ErrorCode.TRANSACTION_ABORTABLE
        for partition in partitions
    }


def _check_producer(
    store: TransactionStore, transactional_id: str, producer_id: int, producer_epoch: int
) -> Transaction:
    known = store.transactions.get(transactional_id)
    if known is None or known.producer_id != producer_id:
        raise ApiError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            f"{transactional_id} is not mapped to producer id {producer_id}",
        )
    if known.epoch != producer_epoch:
        raise ApiError(
            ErrorCode.PRODUCER_FENCED,
            f"{transactional_id} is at epoch {known.epoch}, not {producer_epoch}",
        )
    if known.state in PREPARED:
        raise _concurrent_transactions(known)
    return known


def _concurrent_transactions(known: Transaction) -> ApiError:
    return ApiError(ErrorCode.CONCURRENT_TRANSACTIONS, f"the transaction of {known.id} is completing")
