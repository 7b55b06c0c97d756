"""What goes by the clock: transactions that are open for too long, and ids that nobody uses any more."""

from collections.abc import Iterable
from itertools import islice

from runnel.coordinator.contract import Decision, Moment, Order
from runnel.coordinator.txn.ending import fence
from runnel.coordinator.txn.ledger import Ledger, NeedsProducerId
from runnel.coordinator.txn.markers import prepared_token
from runnel.coordinator.txn.records import transaction_tombstone
from runnel.coordinator.txn.transaction import AT_REST

ABORTS_MAX = 100
"""How many transactions are aborted before requests get their turn."""


class TakeProducerId(Order):
    """Give the shard a producer id: it will need one without being asked."""

    __slots__ = ()


def abort_late(ledger: Ledger, now: Moment) -> tuple[Decision[None], bool]:
    """Abort transactions whose time is up; whether there may be more of them."""
    decision = Decision[None](is_atomic=False)
    late = (
        transaction
        for transaction in map(ledger.transactions.__getitem__, list(ledger.ongoing))
        if transaction.started_ms + transaction.timeout_ms < now.wall_ms
    )
    for transaction in islice(late, ABORTS_MAX):
        try:
            fence(ledger, transaction, now, decision)
        except NeedsProducerId:
            decision.order(TakeProducerId())
    for name in ledger.prepared:
        # The wait for its commit may have ended with a sync that failed.
        if name not in ledger.markings:
            decision.when_committed(prepared_token(ledger.transactions[name]))
    return decision, len(decision.records) == ABORTS_MAX


def expire(ledger: Ledger, names: Iterable[str], now: Moment) -> Decision[None]:
    """Forget ids that were not used for long."""
    used_min_ms = now.wall_ms - ledger.settings.expiration_ms
    decision = Decision[None](is_atomic=False)
    for name in names:
        transaction = ledger.transactions.get(name)
        if transaction is None or transaction.state not in AT_REST:
            continue
        if transaction.updated_ms <= used_min_ms:
            decision.records.append(transaction_tombstone(name))
    return decision
