"""What a shard knows of its transactions, shared by the files that each decide one kind of request."""

from dataclasses import dataclass, field

from runnel.coordinator.txn.settings import TransactionSettings
from runnel.coordinator.txn.transaction import PREPARED, Transaction, TransactionState
from runnel.model.ids import TopicPartition


class ProducerIdRequired(Exception):
    """Nothing was decided: it takes a producer id that nobody has had. Give one and ask again."""


@dataclass(slots=True)
class PendingMarkers:
    """The markers of one transaction that are still to be written."""

    in_flight: set[TopicPartition]
    failed: set[TopicPartition] = field(default_factory=set)
    """To be tried again."""

    @property
    def is_done(self) -> bool:
        return not self.in_flight and not self.failed


@dataclass(slots=True)
class TransactionStore:
    """All transactions of a shard by id, and what is under way."""

    settings: TransactionSettings
    transactions: dict[str, Transaction] = field(default_factory=dict)
    ongoing: dict[str, None] = field(default_factory=dict)
    """Those that can run out of time."""
    prepared: dict[str, None] = field(default_factory=dict)
    """Those whose end is decided and not yet told everywhere."""
    pending_markers: dict[str, PendingMarkers] = field(default_factory=dict)
    """A prepared transaction that is not in here awaits its commit."""
    spare_producer_ids: list[int] = field(default_factory=list)

    def take_producer_id(self) -> int:
        if not self.spare_producer_ids:
            raise ProducerIdRequired
        return self.spare_producer_ids.pop()

    def put(self, transaction: Transaction) -> None:
        """The log says so."""
        name = transaction.id
        self.transactions[name] = transaction
        if transaction.state is TransactionState.ONGOING:
            self.ongoing[name] = None
        else:
            self.ongoing.pop(name, None)
        if transaction.state in PREPARED:
            self.prepared[name] = None
        else:
            self.prepared.pop(name, None)
            self.pending_markers.pop(name, None)

    def remove(self, name: str) -> None:
        """The log says that the id is forgotten."""
        self.transactions.pop(name, None)
        self.ongoing.pop(name, None)
        self.prepared.pop(name, None)
        self.pending_markers.pop(name, None)
