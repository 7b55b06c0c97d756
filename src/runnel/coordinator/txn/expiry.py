"""Transaction timeouts and expiration of transactional ids."""

from collections.abc import Iterable
from math import inf

from runnel.coordinator.contract import CoordinatorResult, Moment, ShardEffect
from runnel.coordinator.txn.end_txn import fence
from runnel.coordinator.txn.markers import prepared_token
from runnel.coordinator.txn.records import transaction_tombstone
from runnel.coordinator.txn.store import ProducerIdRequired, TransactionStore
from runnel.coordinator.txn.transaction import IDLE

ABORTS_MAX = 100
"""The number of transactions that one step aborts."""


class AllocateProducerId(ShardEffect):
    """Allocate a producer id for the shard."""

    __slots__ = ()


def abort_timed_out(store: TransactionStore, now: Moment) -> tuple[CoordinatorResult[None], bool]:
    """Abort transactions that have timed out; returns whether there may be more."""
    result = CoordinatorResult[None](is_atomic=False)
    set_deadlines(store, now)
    late = [name for name, due_ms in store.ongoing.items() if due_ms is not None and due_ms < now.steady_ms]
    for name in late[:ABORTS_MAX]:
        try:
            fence(store, store.transactions[name], now, result)
        except ProducerIdRequired:
            result.add_effect(AllocateProducerId())
    for name in store.prepared:
        # The previous wait may have failed with an fsync error.
        if name not in store.pending_markers:
            result.when_committed(prepared_token(store.transactions[name]))
    return result, len(result.records) == ABORTS_MAX


def set_deadlines(store: TransactionStore, now: Moment) -> None:
    """Give each open transaction its deadline in monotonic time, which does not jump.

    A transaction that was begun elsewhere has only its start in wall-clock time; one that was begun here
    is no older than the last call of this function.
    """
    age_max_ms = inf if store.deadlines_set_ms is None else now.steady_ms - store.deadlines_set_ms
    for name, due_ms in store.ongoing.items():
        if due_ms is None:
            known = store.transactions[name]
            age_ms = min(max(0, now.wall_ms - known.started_ms), age_max_ms)
            store.ongoing[name] = now.steady_ms + known.timeout_ms - int(age_ms)
    store.deadlines_set_ms = now.steady_ms


def expire(store: TransactionStore, names: Iterable[str], now: Moment) -> CoordinatorResult[None]:
    """Remove transactional ids that have expired."""
    used_min_ms = now.wall_ms - store.settings.expiration_ms
    result = CoordinatorResult[None](is_atomic=False)
    for name in names:
        transaction = store.transactions.get(name)
        if transaction is None or transaction.state not in IDLE:
            continue
        if transaction.updated_ms <= used_min_ms:
            result.records.append(transaction_tombstone(name))
    return result
