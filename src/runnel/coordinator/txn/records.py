"""The records of transactions, in Kafka's `__transaction_state` format."""

from itertools import groupby

from runnel.coordinator.contract import NewRecord
from runnel.coordinator.txn.settings import TRANSACTION_V2
from runnel.coordinator.txn.transaction import (
    NO_EPOCH,
    PREPARED,
    Transaction,
    TransactionState,
)
from runnel.model.ids import TopicPartition
from runnel.schemas.txn import PartitionsSchema, TransactionLogKey, TransactionLogValue
from runnel.wire import MalformedMessage


def transaction_record(transaction: Transaction, transaction_version: int) -> NewRecord:
    """The record of a transaction, in the oldest version that this `transaction.version` allows."""
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=_grouped(transaction),
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
    )
    key = TransactionLogKey(transactional_id=transaction.id)
    if transaction_version == 0 and transaction.client_version < TRANSACTION_V2:
        return NewRecord(key, value, 0)
    value.previous_producer_id = transaction.previous_producer_id
    value.next_producer_id = transaction.next_producer_id
    value.client_transaction_version = transaction.client_version
    return NewRecord(key, value, 1)


def transaction_tombstone(transactional_id: str) -> NewRecord:
    return NewRecord(TransactionLogKey(transactional_id=transactional_id), None)


def read_transaction(
    known: Transaction | None, key: TransactionLogKey, value: TransactionLogValue
) -> Transaction:
    """Decode the transaction of a record."""
    try:
        state = TransactionState(value.transaction_status)
    except ValueError:
        raise MalformedMessage(f"unknown transaction status {value.transaction_status}") from None
    transaction = Transaction(
        id=key.transactional_id,
        producer_id=value.producer_id,
        epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        updated_ms=value.transaction_last_update_timestamp_ms,
        partitions=frozenset(
            TopicPartition(schema.topic, index)
            for schema in value.transaction_partitions or ()
            for index in schema.partition_ids
        ),
        started_ms=value.transaction_start_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_version=value.client_transaction_version,
    )
    if known is not None:
        transaction.last_epoch = _last_epoch(known, transaction)
    return transaction


def _last_epoch(known: Transaction, transaction: Transaction) -> int:
    if transaction.state is TransactionState.EMPTY:
        # Set by the continuation of InitProducerId.
        return NO_EPOCH
    if transaction.state in PREPARED and transaction.epoch != known.epoch:
        return known.epoch if transaction.client_version >= TRANSACTION_V2 else NO_EPOCH
    return known.last_epoch


def _grouped(transaction: Transaction) -> list[PartitionsSchema] | None:
    if transaction.state is TransactionState.EMPTY:
        return None
    by_topic = groupby(sorted(transaction.partitions), key=lambda partition: partition.topic)
    return [
        PartitionsSchema(topic, [partition.partition for partition in group]) for topic, group in by_topic
    ]
