"""The state of a transaction shard."""

from dataclasses import dataclass, field

from runnel.coordinator.txn.settings import FIRST_RETRY_MS, RETRY_MS, TransactionSettings
from runnel.coordinator.txn.transaction import PREPARED, Transaction, TransactionState
from runnel.model.ids import TopicPartition


class ProducerIdRequired(Exception):
    """The operation requires a new producer id: add one and retry. The state is unchanged."""


@dataclass(slots=True)
class PendingMarkers:
    """The partitions of a transaction whose markers are not written yet."""

    in_flight: set[TopicPartition]
    failed: set[TopicPartition] = field(default_factory=set)
    """To be retried."""
    retries: int = 0

    @property
    def retry_delay_ms(self) -> int:
        """A new leader is usually known within moments; a partition without one may stay so for long."""
        return min(RETRY_MS, FIRST_RETRY_MS << min(self.retries, 10))

    @property
    def is_done(self) -> bool:
        return not self.in_flight and not self.failed


@dataclass(slots=True)
class TransactionStore:
    """All transactions of a shard by transactional id, and their pending markers."""

    settings: TransactionSettings
    transactions: dict[str, Transaction] = field(default_factory=dict)
    ongoing: dict[str, int | None] = field(default_factory=dict)
    """Transactions that can time out → their deadline in monotonic time, once it is known."""
    deadlines_set_ms: int | None = None
    """When the deadlines of all open transactions were known, in monotonic time."""
    prepared: dict[str, None] = field(default_factory=dict)
    """Transactions in a prepare state, whose markers are not all written."""
    pending_markers: dict[str, PendingMarkers] = field(default_factory=dict)
    """A prepared transaction without an entry waits until its prepare record is committed."""
    spare_producer_ids: list[int] = field(default_factory=list)

    def take_producer_id(self) -> int:
        if not self.spare_producer_ids:
            raise ProducerIdRequired
        return self.spare_producer_ids.pop()

    def put(self, transaction: Transaction) -> None:
        """Replay: add or replace a transaction."""
        name = transaction.id
        self.transactions[name] = transaction
        if transaction.state is TransactionState.ONGOING:
            self.ongoing.setdefault(name)
        else:
            self.ongoing.pop(name, None)
        if transaction.state in PREPARED:
            self.prepared[name] = None
        else:
            self.prepared.pop(name, None)
            self.pending_markers.pop(name, None)

    def remove(self, name: str) -> None:
        """Replay: remove a transactional id."""
        self.transactions.pop(name, None)
        self.ongoing.pop(name, None)
        self.prepared.pop(name, None)
        self.pending_markers.pop(name, None)
