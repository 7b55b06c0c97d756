"""The transaction coordinator's shard: all transactional ids of one partition of `__transaction_state`."""

from collections.abc import Callable, Collection
from typing import Any

from runnel.coordinator.contract import CoordinatorResult, Moment, ReplayContext, Timer
from runnel.coordinator.txn import describe, expiry, markers
from runnel.coordinator.txn.end_txn import Prepared, end
from runnel.coordinator.txn.init import Initialized, init_producer_id
from runnel.coordinator.txn.markers import Completed
from runnel.coordinator.txn.partitions import AddResult, add_partitions, verify_partitions
from runnel.coordinator.txn.records import read_transaction
from runnel.coordinator.txn.settings import RETRY_MS, TransactionSettings
from runnel.coordinator.txn.store import TransactionStore
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
"""The number of transactional ids that one step of the expiration examines."""


class TransactionShard:
    """The entry point for all requests to the transactional ids of a shard."""

    record_types = TRANSACTION_RECORDS
    # A lost record may be the commit of a transaction, which must not be aborted afterwards.
    can_skip_corrupt_batches = False

    def __init__(self, settings: TransactionSettings) -> None:
        self.store = TransactionStore(settings)
        self._unexamined: list[str] = []
        """Ids that the current expiration has not examined yet."""

    def add_producer_id(self, producer_id: int) -> None:
        """Add an unused producer id to the pool of the shard."""
        self.store.spare_producer_ids.append(producer_id)

    def init_producer_id(
        self, request: InitProducerIdRequest, now: Moment
    ) -> CoordinatorResult[InitProducerIdResponse]:
        return init_producer_id(self.store, request, now)

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        client_version: int,
        now: Moment,
    ) -> AddResult:
        return add_partitions(
            self.store, transactional_id, producer_id, producer_epoch, partitions, client_version, now
        )

    def verify_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
    ) -> dict[TopicPartition, ErrorCode]:
        return verify_partitions(self.store, transactional_id, producer_id, producer_epoch, partitions)

    def end(self, request: EndTxnRequest, api_version: int, now: Moment) -> CoordinatorResult[EndTxnResponse]:
        return end(self.store, request, api_version, now)

    def marked(
        self, ended: Prepared, partition: TopicPartition, error: ErrorCode, now: Moment
    ) -> CoordinatorResult[None]:
        return markers.marked(self.store, ended, partition, error, now)

    def describe(self, transactional_id: str) -> describe_transactions.TransactionState:
        return describe.describe(self.store, transactional_id)

    def list_transactions(
        self,
        states: Collection[TransactionState] | None,
        producer_ids: Collection[int],
        open_min_ms: int,
        matches: Callable[[str], object] | None,
        now_ms: int,
    ) -> list[list_transactions.TransactionState]:
        return describe.list_all(self.store, states, producer_ids, open_min_ms, matches, now_ms)

    def replay(self, key: Data, value: Data | None, context: ReplayContext) -> None:
        """Apply a record of the log."""
        match key, value:
            case TransactionLogKey(), TransactionLogValue():
                known = self.store.transactions.get(key.transactional_id)
                self.store.put(read_transaction(known, key, value))
            case TransactionLogKey(), None:
                self.store.remove(key.transactional_id)
            case _:
                raise TypeError(f"unexpected record key {type(key).__name__}")

    def replay_end(self, producer_id: int, producer_epoch: int, is_commit: bool) -> None:
        """Not used: transaction state is not written in transactions."""

    def defer(self, key: bytes, value: bytes | None, offset: int) -> bool:
        """Not used: retries are recognized by the previous epoch, which only the previous record has."""
        return False

    def replay_deferred(self, count: int) -> bool:
        """Nothing is deferred."""
        return False

    def resume(self, continuation: Any, error: ErrorCode | None, now: Moment) -> CoordinatorResult[None]:
        """Continue after the records of a result were appended, or the append failed."""
        match continuation:
            case Initialized(transactional_id, last_epoch):
                if error is None:
                    self.store.transactions[transactional_id].last_epoch = last_epoch
                return CoordinatorResult()
            case Completed():
                return markers.completed(self.store, continuation, error)
            case _:
                raise TypeError(f"unexpected continuation {type(continuation).__name__}")

    def committed(self, token: Any, now: Moment) -> CoordinatorResult[None]:
        """Write the markers of a transaction whose prepare record is committed."""
        match token:
            case Prepared():
                return markers.write_markers(self.store, token, now)
            case _:
                raise TypeError(f"unexpected token {type(token).__name__}")

    def fired(self, timer: Timer, now: Moment) -> CoordinatorResult[None]:
        """Handle a timer."""
        match timer.kind:
            case "abort":
                result, has_more = expiry.abort_timed_out(self.store, now)
                result.set_timer(_ABORT, RETRY_MS if has_more else self.store.settings.abort_interval_ms)
                return result
            case "expire":
                return self._expire(now)
            case "markers":
                return markers.retry_markers(self.store, timer.subject, now)
            case _:
                raise ValueError(f"unexpected timer {timer.kind}")

    def _expire(self, now: Moment) -> CoordinatorResult[None]:
        if not self._unexamined:
            self._unexamined = list(self.store.transactions)
        examined, self._unexamined = self._unexamined[:IDS_PER_EXPIRY], self._unexamined[IDS_PER_EXPIRY:]
        result = expiry.expire(self.store, examined, now)
        result.set_timer(_EXPIRE, 0 if self._unexamined else self.store.settings.expire_interval_ms)
        return result

    def loaded(self, now: Moment) -> CoordinatorResult[None]:
        """Start the timers, and resume writing the markers of prepared transactions."""
        result = CoordinatorResult[None]()
        expiry.set_deadlines(self.store, now)
        result.set_timer(_ABORT, self.store.settings.abort_interval_ms)
        result.set_timer(_EXPIRE, self.store.settings.expire_interval_ms)
        for name in self.store.prepared:
            result.when_committed(markers.prepared_token(self.store.transactions[name]))
        return result

    def unloaded(self) -> CoordinatorResult[None]:
        """Reset the state; no requests are parked."""
        self.store = TransactionStore(self.store.settings)
        return CoordinatorResult()
