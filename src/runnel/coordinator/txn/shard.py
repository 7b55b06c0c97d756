"""The transaction coordinator's shard: all ids that one partition of `__transaction_state` keeps."""

from collections.abc import Callable, Collection
from typing import Any

from runnel.coordinator.contract import Decision, Moment, Place, Timer
from runnel.coordinator.txn import describe, expiry, markers
from runnel.coordinator.txn.ending import Prepared, end
from runnel.coordinator.txn.init import Initialized, init_producer_id
from runnel.coordinator.txn.ledger import Ledger
from runnel.coordinator.txn.markers import Completed
from runnel.coordinator.txn.partitions import AddDecision, add_partitions, verify_partitions
from runnel.coordinator.txn.records import read_transaction
from runnel.coordinator.txn.settings import RETRY_MS, TransactionSettings
from runnel.coordinator.txn.transaction import TransactionState
from runnel.messages import describe_transactions, list_transactions
from runnel.messages.end_txn import EndTxnRequest, EndTxnResponse
from runnel.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition
from runnel.schemas.txn import TRANSACTION_RECORDS, TransactionLogKey, TransactionLogValue
from runnel.wire import Data

_ABORT = Timer("abort", "")
_EXPIRE = Timer("expire", "")

IDS_PER_EXPIRY = 1000
"""How many ids are looked over before requests get their turn."""


class TransactionShard:
    """The door to a set of transactional ids; each request has its own file."""

    record_types = TRANSACTION_RECORDS
    # A lost record may say that a transaction was committed, which must not be aborted now.
    can_skip_damage = False

    def __init__(self, settings: TransactionSettings) -> None:
        self.ledger = Ledger(settings)
        self._unexamined: list[str] = []
        """Ids that the expiry under way has not looked at yet."""

    def give_producer_id(self, producer_id: int) -> None:
        """An id that nobody has had, for whenever the shard needs one."""
        self.ledger.spare_producer_ids.append(producer_id)

    def init_producer_id(
        self, request: InitProducerIdRequest, now: Moment
    ) -> Decision[InitProducerIdResponse]:
        return init_producer_id(self.ledger, request, now)

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        client_version: int,
        now: Moment,
    ) -> AddDecision:
        return add_partitions(
            self.ledger, transactional_id, producer_id, producer_epoch, partitions, client_version, now
        )

    def verify_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
    ) -> dict[TopicPartition, ErrorCode]:
        return verify_partitions(self.ledger, transactional_id, producer_id, producer_epoch, partitions)

    def end(self, request: EndTxnRequest, api_version: int, now: Moment) -> Decision[EndTxnResponse]:
        return end(self.ledger, request, api_version, now)

    def marked(
        self, ended: Prepared, partition: TopicPartition, error: ErrorCode, now: Moment
    ) -> Decision[None]:
        return markers.marked(self.ledger, ended, partition, error, now)

    def describe(self, transactional_id: str) -> describe_transactions.TransactionState:
        return describe.describe(self.ledger, transactional_id)

    def list_transactions(
        self,
        states: Collection[TransactionState] | None,
        producer_ids: Collection[int],
        open_min_ms: int,
        matches: Callable[[str], object] | None,
        now_ms: int,
    ) -> list[list_transactions.TransactionState]:
        return describe.list_all(self.ledger, states, producer_ids, open_min_ms, matches, now_ms)

    def replay(self, key: Data, value: Data | None, place: Place) -> None:
        """The log holds this record: the only way durable state changes."""
        match key, value:
            case TransactionLogKey(), TransactionLogValue():
                known = self.ledger.transactions.get(key.transactional_id)
                self.ledger.put(read_transaction(known, key, value))
            case TransactionLogKey(), None:
                self.ledger.remove(key.transactional_id)
            case _:
                raise TypeError(f"{type(key).__name__} is no record of transactions")

    def replay_end(self, producer_id: int, producer_epoch: int, is_commit: bool) -> None:
        """The state of transactions is itself not written in transactions."""

    def resume(self, then: Any, error: ErrorCode | None, now: Moment) -> Decision[None]:
        """The log took the records of a decision, or refused them."""
        match then:
            case Initialized(transactional_id, last_epoch):
                if error is None:
                    self.ledger.transactions[transactional_id].last_epoch = last_epoch
                return Decision()
            case Completed():
                return markers.completed(then, error)
            case _:
                raise TypeError(f"{type(then).__name__} is nothing that transactions wait for")

    def committed(self, token: Any, now: Moment) -> Decision[None]:
        """The end of a transaction is committed."""
        match token:
            case Prepared():
                return markers.write_markers(self.ledger, token, now)
            case _:
                raise TypeError(f"{type(token).__name__} is nothing that transactions wait for")

    def fired(self, timer: Timer, now: Moment) -> Decision[None]:
        """A timer that was set has run out."""
        match timer.kind:
            case "abort":
                decision, has_more = expiry.abort_late(self.ledger, now)
                decision.set_timer(_ABORT, RETRY_MS if has_more else self.ledger.settings.abort_interval_ms)
                return decision
            case "expire":
                return self._expire(now)
            case "markers":
                return markers.write_again(self.ledger, timer.subject, now)
            case _:
                raise ValueError(f"transactions have no timer {timer.kind}")

    def _expire(self, now: Moment) -> Decision[None]:
        if not self._unexamined:
            self._unexamined = list(self.ledger.transactions)
        examined, self._unexamined = self._unexamined[:IDS_PER_EXPIRY], self._unexamined[IDS_PER_EXPIRY:]
        decision = expiry.expire(self.ledger, examined, now)
        decision.set_timer(_EXPIRE, 0 if self._unexamined else self.ledger.settings.expire_interval_ms)
        return decision

    def loaded(self, now: Moment) -> Decision[None]:
        """Take up the clock, and the markers that the coordinator before may not have written."""
        decision = Decision[None]()
        decision.set_timer(_ABORT, self.ledger.settings.abort_interval_ms)
        decision.set_timer(_EXPIRE, self.ledger.settings.expire_interval_ms)
        for name in self.ledger.prepared:
            decision.when_committed(markers.prepared_token(self.ledger.transactions[name]))
        return decision

    def unloaded(self) -> Decision[None]:
        """Another node takes over; nobody waits here but for the log."""
        self.ledger = Ledger(self.ledger.settings)
        return Decision()
