"""DescribeTransactions and ListTransactions."""

from collections.abc import Callable, Collection
from itertools import groupby

from runnel.coordinator.txn.store import TransactionStore
from runnel.coordinator.txn.transaction import TransactionState
from runnel.messages import describe_transactions, list_transactions
from runnel.messages.describe_transactions import TopicData
from runnel.model.errors import ErrorCode

STATES = {state.display_name: state for state in TransactionState}


def describe(store: TransactionStore, transactional_id: str) -> describe_transactions.TransactionState:
    """Describe one transactional id."""
    known = store.transactions.get(transactional_id)
    if known is None:
        return describe_transactions.TransactionState(
            error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND.code, transactional_id=transactional_id
        )
    by_topic = groupby(sorted(known.partitions), key=lambda partition: partition.topic)
    return describe_transactions.TransactionState(
        transactional_id=transactional_id,
        transaction_state=known.state.display_name,
        transaction_timeout_ms=known.timeout_ms,
        transaction_start_time_ms=known.started_ms,
        producer_id=known.producer_id,
        producer_epoch=known.epoch,
        topics=[TopicData(topic, [part.partition for part in group]) for topic, group in by_topic],
    )


def list_all(
    store: TransactionStore,
    states: Collection[TransactionState] | None,
    producer_ids: Collection[int],
    open_min_ms: int,
    matches: Callable[[str], object] | None,
    now_ms: int,
) -> list[list_transactions.TransactionState]:
    """The transactional ids that match all filters; empty ones match all, except an empty set of states."""
    return [
        list_transactions.TransactionState(known.id, known.producer_id, known.state.display_name)
        for known in store.transactions.values()
        if (states is None or known.state in states)
        and (not producer_ids or known.producer_id in producer_ids)
        and (open_min_ms < 0 or now_ms - known.started_ms > open_min_ms)
        and (matches is None or matches(known.id))
    ]
