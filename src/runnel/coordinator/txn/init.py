"""InitProducerId: initialize a transactional producer and fence its predecessors.

* Unknown transactional id: a new producer id with epoch 0.
* No open transaction: the next epoch; a new producer id if the epochs are exhausted.
* Ongoing transaction: it is aborted first, and the client retries.
* Completing transaction: the client retries until the markers are written.

A producer that sends its current id and epoch (since v3) resumes, unless it was fenced. If it sends the
previous epoch, the response was lost and is repeated (KIP-360).
"""

from dataclasses import dataclass, replace

from runnel.coordinator.contract import CoordinatorResult, Moment
from runnel.coordinator.txn.end_txn import fence
from runnel.coordinator.txn.records import transaction_record
from runnel.coordinator.txn.store import TransactionStore
from runnel.coordinator.txn.transaction import (
    CLIENT_EPOCH_MAX,
    NO_EPOCH,
    NO_PRODUCER_ID,
    PREPARED,
    Transaction,
    TransactionState,
)
from runnel.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from runnel.model.errors import ApiError, ErrorCode

InitResult = CoordinatorResult[InitProducerIdResponse]


@dataclass(slots=True)
class Initialized:
    """Continuation: the epoch with which the client may retry if the response is lost."""

    transactional_id: str
    last_epoch: int


def init_producer_id_error(error: ErrorCode) -> InitProducerIdResponse:
    # The default epoch 0 would be valid.
    return InitProducerIdResponse(error_code=error.code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)


def init_producer_id(store: TransactionStore, request: InitProducerIdRequest, now: Moment) -> InitResult:
    """Handle an InitProducerId with a transactional id. Raises ApiError, or ProducerIdRequired."""
    name = request.transactional_id or ""
    if not 0 < request.transaction_timeout_ms <= store.settings.timeout_max_ms:
        raise ApiError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    known = store.transactions.get(name)
    if known is None:
        new = Transaction(
            id=name,
            producer_id=store.take_producer_id(),
            epoch=0,
            timeout_ms=request.transaction_timeout_ms,
            state=TransactionState.EMPTY,
            updated_ms=now.wall_ms,
        )
        return _initialized(store, new, NO_EPOCH)
    if known.state in PREPARED:
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS, f"the transaction of {name} is completing")
    _check_identity(known, request)
    if known.state is TransactionState.ONGOING:
        result: InitResult = CoordinatorResult(init_producer_id_error(ErrorCode.CONCURRENT_TRANSACTIONS))
        fence(store, known, now, result)
        return result
    updated = replace(
        known,
        timeout_ms=request.transaction_timeout_ms,
        state=TransactionState.EMPTY,
        updated_ms=now.wall_ms,
        partitions=frozenset(),
        started_ms=-1,
        previous_producer_id=known.producer_id,
        client_version=0,
    )
    return _bump(store, known, updated, request)


def _check_identity(known: Transaction, request: InitProducerIdRequest) -> None:
    if request.producer_id == NO_PRODUCER_ID:
        return
    is_rotated = (
        request.producer_id == known.previous_producer_id and request.producer_epoch >= CLIENT_EPOCH_MAX
    )
    if request.producer_id != known.producer_id and not is_rotated:
        raise _fenced(known, request)
    # A delayed request must not abort the open transaction.
    if known.state is TransactionState.ONGOING and request.producer_epoch != known.epoch:
        raise _fenced(known, request)


def _bump(
    store: TransactionStore, known: Transaction, updated: Transaction, request: InitProducerIdRequest
) -> InitResult:
    has_producer_id = request.producer_id != NO_PRODUCER_ID
    is_current = request.producer_id == known.producer_id and request.producer_epoch == known.epoch
    if has_producer_id and not is_current:
        if request.producer_epoch != known.last_epoch:
            raise _fenced(known, request)
        # A retry: the response was lost.
        updated.previous_producer_id = known.previous_producer_id
        return _initialized(store, updated, known.last_epoch)
    last_epoch = known.epoch if has_producer_id else NO_EPOCH
    if known.is_exhausted:
        updated.producer_id, updated.epoch = store.take_producer_id(), 0
    else:
        updated.epoch = known.epoch + 1
    return _initialized(store, updated, last_epoch)


def _initialized(store: TransactionStore, updated: Transaction, last_epoch: int) -> InitResult:
    response = InitProducerIdResponse(producer_id=updated.producer_id, producer_epoch=updated.epoch)
    record = transaction_record(updated, store.settings.transaction_version)
    return CoordinatorResult(response, records=[record], continuation=Initialized(updated.id, last_epoch))


def _fenced(known: Transaction, request: InitProducerIdRequest) -> ApiError:
    return ApiError(
        ErrorCode.PRODUCER_FENCED,
        f"{known.id} has producer id {known.producer_id} and epoch {known.epoch}, "
        f"not {request.producer_id} and {request.producer_epoch}",
    )
