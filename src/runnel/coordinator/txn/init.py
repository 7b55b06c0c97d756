"""InitProducerId: somebody takes a transactional id, and whoever had it before is fenced.

* Nobody had it: a new producer id at epoch 0.
* At rest: the next epoch; when epochs run out, a new producer id.
* With an open transaction: that one is aborted first, and the client asks again.
* With a prepared one: the client asks again when its markers are written.

Who shows the id and epoch it has (since v3) goes on as the same producer, and is refused if it was fenced. An
answer that was lost is given again to whoever shows the epoch before it (KIP-360).
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
    """The epoch that a client may show once more if it misses the answer."""

    transactional_id: str
    last_epoch: int


def init_producer_id_error(error: ErrorCode) -> InitProducerIdResponse:
    # Epoch 0 beside an error would be a valid epoch.
    return InitProducerIdResponse(error_code=error.code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)


def init_producer_id(store: TransactionStore, request: InitProducerIdRequest, now: Moment) -> InitResult:
    """Decide on an InitProducerId with a transactional id. NeedsProducerId if it takes a new one."""
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
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS, f"{name} is being ended")
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
    # An open transaction is its holder's: it must not be aborted by a request of the past.
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
        # Said before, and lost on the way.
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
        f"{known.id} is held by producer {known.producer_id} at epoch {known.epoch}, "
        f"not by {request.producer_id} at {request.producer_epoch}",
    )
