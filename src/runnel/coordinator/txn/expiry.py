"""What goes by the clock: transactions that are open for too long, and ids that nobody uses any more."""

from collections.abc import Iterable
from itertools import islice

from runnel.coordinator.contract import CoordinatorResult, Moment, ShardEffect
from runnel.coordinator.txn.end_txn import fence
from runnel.coordinator.txn.markers import prepared_token
from runnel.coordinator.txn.records import transaction_tombstone
from runnel.coordinator.txn.store import ProducerIdRequired, TransactionStore
from runnel.coordinator.txn.transaction import IDLE

ABORTS_MAX = 100
"""How many transactions are aborted before requests get their turn."""


class AllocateProducerId(ShardEffect):
    """Give the shard a producer id: it will need one without being asked."""

    __slots__ = ()


def abort_timed_out(store: TransactionStore, now: Moment) -> tuple[CoordinatorResult[None], bool]:
    """Abort transactions whose time is up; whether there may be more of them."""
    result = CoordinatorResult[None](is_atomic=False)
    late = (
        transaction
        for transaction in map(store.transactions.__getitem__, list(store.ongoing))
        if transaction.started_ms + transaction.timeout_ms < now.wall_ms
    )
    for transaction in islice(late, ABORTS_MAX):
        try:
            fence(store, transaction, now, result)
        except ProducerIdRequired:
            result.add_effect(AllocateProducerId())
    for name in store.prepared:
        # The wait for its commit may have ended with a sync that failed.
        if name not in store.pending_markers:
            result.when_committed(prepared_token(store.transactions[name]))
    return result, len(result.records) == ABORTS_MAX


def expire(store: TransactionStore, names: Iterable[str], now: Moment) -> CoordinatorResult[None]:
    """Forget ids that were not used for long."""
    used_min_ms = now.wall_ms - store.settings.expiration_ms
    result = CoordinatorResult[None](is_atomic=False)
    for name in names:
        transaction = store.transactions.get(name)
        if transaction is None or transaction.state not in IDLE:
            continue
        if transaction.updated_ms <= used_min_ms:
            result.records.append(transaction_tombstone(name))
    return result
