"""EndTxn, and aborts by the coordinator: after a timeout, or when a producer is fenced.

In the original protocol the epoch does not change, so a delayed duplicate is not distinguishable from the
next request. With KIP-890 (EndTxn v5) every end bumps the epoch, which fences earlier requests and identifies
retries.

    state, epoch of the request     commit                        abort
    Ongoing, current                ▶ PrepareCommit               ▶ PrepareAbort
    Prepare, current                CONCURRENT_TRANSACTIONS: the markers are not written yet
    Prepare, previous               CONCURRENT_TRANSACTIONS if the result is the same, else INVALID_TXN_STATE
    Complete, previous              the response again if the result is the same, else INVALID_TXN_STATE
    Empty or Complete, current      INVALID_TXN_STATE             ▶ PrepareAbort, to bump the epoch
    anything else                   PRODUCER_FENCED
"""

from dataclasses import dataclass, replace
from typing import Any

from runnel.coordinator.contract import CoordinatorResult, Moment
from runnel.coordinator.txn.records import transaction_record
from runnel.coordinator.txn.settings import TRANSACTION_V2
from runnel.coordinator.txn.store import TransactionStore
from runnel.coordinator.txn.transaction import (
    CLIENT_EPOCH_MAX,
    IDLE,
    NO_EPOCH,
    NO_PRODUCER_ID,
    PREPARED,
    Transaction,
    TransactionState,
)
from runnel.messages.end_txn import EndTxnRequest, EndTxnResponse
from runnel.model.errors import ApiError, ErrorCode

_EPOCH_BUMP_FROM = 5
_PREPARE = {True: TransactionState.PREPARE_COMMIT, False: TransactionState.PREPARE_ABORT}
_COMPLETE = {True: TransactionState.COMPLETE_COMMIT, False: TransactionState.COMPLETE_ABORT}


@dataclass(frozen=True, slots=True)
class Prepared:
    """Identifies the end of one transaction, distinct from later ones of the same transactional id."""

    transactional_id: str
    producer_id: int
    epoch: int


def end_txn_error(error: ErrorCode) -> EndTxnResponse:
    return EndTxnResponse(error_code=error.code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)


def end(
    store: TransactionStore, request: EndTxnRequest, api_version: int, now: Moment
) -> CoordinatorResult[EndTxnResponse]:
    """Handle an EndTxn. Raises ApiError, or ProducerIdRequired if the epochs are exhausted."""
    known = store.transactions.get(request.transactional_id)
    if known is None:
        raise ApiError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"transactional id {request.transactional_id} is unknown"
        )
    if api_version < _EPOCH_BUMP_FROM:
        return _end_classic(store, known, request, now)
    return _end_and_bump(store, known, request, now)


def fence(store: TransactionStore, known: Transaction, now: Moment, result: CoordinatorResult[Any]) -> None:
    """Abort an open transaction and fence its producer."""
    version = store.settings.transaction_version
    next_id = NO_PRODUCER_ID
    if version < TRANSACTION_V2:
        version = 0
    elif known.is_exhausted:
        next_id = store.take_producer_id()
    aborted = replace(
        known,
        state=TransactionState.PREPARE_ABORT,
        epoch=known.epoch + 1,
        next_producer_id=next_id,
        client_version=version,
        updated_ms=now.wall_ms,
    )
    _prepare(store, aborted, result)


def _end_classic(
    store: TransactionStore, known: Transaction, request: EndTxnRequest, now: Moment
) -> CoordinatorResult[EndTxnResponse]:
    if known.producer_id != request.producer_id:
        raise _invalid_producer_id_mapping(known, request)
    if known.epoch != request.producer_epoch:
        raise _fenced(known, request)
    result: CoordinatorResult[EndTxnResponse] = CoordinatorResult(EndTxnResponse())
    if known.state is TransactionState.ONGOING:
        ended = replace(known, state=_PREPARE[request.committed], client_version=0, updated_ms=now.wall_ms)
        _prepare(store, ended, result)
        return result
    _check_repeat(known, request)
    return result


def _end_and_bump(
    store: TransactionStore, known: Transaction, request: EndTxnRequest, now: Moment
) -> CoordinatorResult[EndTxnResponse]:
    is_rotated = (
        known.previous_producer_id == request.producer_id
        and request.producer_epoch == CLIENT_EPOCH_MAX
        and known.epoch == 0
        and known.producer_id != request.producer_id
    )
    if known.producer_id != request.producer_id and not is_rotated:
        raise _invalid_producer_id_mapping(known, request)
    is_current = known.producer_id == request.producer_id and request.producer_epoch == known.epoch
    is_repeat = is_rotated or request.producer_epoch + 1 == known.epoch
    if is_repeat and known.state not in (TransactionState.ONGOING, TransactionState.EMPTY):
        _check_repeat(known, request)
        return CoordinatorResult(EndTxnResponse(producer_id=known.producer_id, producer_epoch=known.epoch))
    if not is_current:
        raise _fenced(known, request)
    if known.state in PREPARED:
        # The producer already uses its next epoch, but the markers are not written yet.
        raise _concurrent_transactions(known)
    if known.state in IDLE and request.committed:
        raise _wrong_state(known, request)
    started_ms = known.started_ms if known.state is TransactionState.ONGOING else now.wall_ms
    ended = replace(
        known,
        state=_PREPARE[request.committed],
        epoch=known.epoch + 1,
        next_producer_id=store.take_producer_id() if known.is_exhausted else NO_PRODUCER_ID,
        client_version=TRANSACTION_V2,
        started_ms=started_ms,
        updated_ms=now.wall_ms,
    )
    response = EndTxnResponse(producer_id=ended.producer_id, producer_epoch=ended.epoch)
    if ended.next_producer_id != NO_PRODUCER_ID:
        response = EndTxnResponse(producer_id=ended.next_producer_id, producer_epoch=0)
    result = CoordinatorResult(response)
    _prepare(store, ended, result)
    return result


def _prepare(store: TransactionStore, ended: Transaction, result: CoordinatorResult[Any]) -> None:
    result.records.append(transaction_record(ended, store.settings.transaction_version))
    result.when_committed(Prepared(ended.id, ended.producer_id, ended.epoch))


def _check_repeat(known: Transaction, request: EndTxnRequest) -> None:
    """Check that a retry requests the same result as the original. Raises ApiError."""
    if known.state is _PREPARE[request.committed]:
        raise _concurrent_transactions(known)
    if known.state is not _COMPLETE[request.committed]:
        raise _wrong_state(known, request)


def _concurrent_transactions(known: Transaction) -> ApiError:
    return ApiError(ErrorCode.CONCURRENT_TRANSACTIONS, f"the transaction of {known.id} is completing")


def _wrong_state(known: Transaction, request: EndTxnRequest) -> ApiError:
    action = "committed" if request.committed else "aborted"
    return ApiError(
        ErrorCode.INVALID_TXN_STATE,
        f"{known.id} is in state {known.state.display_name} and cannot be {action}",
    )


def _invalid_producer_id_mapping(known: Transaction, request: EndTxnRequest) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        f"{known.id} is mapped to producer id {known.producer_id}, not {request.producer_id}",
    )


def _fenced(known: Transaction, request: EndTxnRequest) -> ApiError:
    return ApiError(
        ErrorCode.PRODUCER_FENCED, f"{known.id} is at epoch {known.epoch}, not {request.producer_epoch}"
    )
