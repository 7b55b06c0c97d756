"""InitProducerId: somebody takes a transactional id, and whoever had it before is fenced.

* Nobody had it: a new producer id at epoch 0.
* At rest: the next epoch; when epochs run out, a new producer id.
* With an open transaction: that one is aborted first, and the client asks again.
* With a prepared one: the client asks again when its markers are written.

Who shows the id and epoch it has (since v3) goes on as the same producer, and is refused if it was fenced. An
answer that was lost is given again to whoever shows the epoch before it (KIP-360).
"""

from dataclasses import dataclass, replace

from runnel.coordinator.contract import Decision, Moment
from runnel.coordinator.txn.ending import fence
from runnel.coordinator.txn.ledger import Ledger
from runnel.coordinator.txn.records import transaction_record
from runnel.coordinator.txn.transaction import (
    EPOCH_OF_CLIENTS_MAX,
    NO_EPOCH,
    NO_PRODUCER_ID,
    PREPARED,
    Transaction,
    TransactionState,
)
from runnel.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from runnel.model.errors import ApiError, ErrorCode

InitDecision = Decision[InitProducerIdResponse]


@dataclass(slots=True)
class Initialized:
    """The epoch that a client may show once more if it misses the answer."""

    transactional_id: str
    last_epoch: int


def init_refused(error: ErrorCode) -> InitProducerIdResponse:
    # Epoch 0 beside an error would be a valid epoch.
    return InitProducerIdResponse(error_code=error.code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)


def init_producer_id(ledger: Ledger, request: InitProducerIdRequest, now: Moment) -> InitDecision:
    """Decide on an InitProducerId with a transactional id. NeedsProducerId if it takes a new one."""
    name = request.transactional_id or ""
    if not 0 < request.transaction_timeout_ms <= ledger.settings.timeout_max_ms:
        raise ApiError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    known = ledger.transactions.get(name)
    if known is None:
        new = Transaction(
            id=name,
            producer_id=ledger.take_producer_id(),
            epoch=0,
            timeout_ms=request.transaction_timeout_ms,
            state=TransactionState.EMPTY,
            updated_ms=now.wall_ms,
        )
        return _initialized(ledger, new, NO_EPOCH)
    if known.state in PREPARED:
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS, f"{name} is being ended")
    _check_identity(known, request)
    if known.state is TransactionState.ONGOING:
        decision: InitDecision = Decision(init_refused(ErrorCode.CONCURRENT_TRANSACTIONS))
        fence(ledger, known, now, decision)
        return decision
    fresh = replace(
        known,
        timeout_ms=request.transaction_timeout_ms,
        state=TransactionState.EMPTY,
        updated_ms=now.wall_ms,
        partitions=frozenset(),
        started_ms=-1,
        previous_producer_id=known.producer_id,
        client_version=0,
    )
    return _bump(ledger, known, fresh, request)


def _check_identity(known: Transaction, request: InitProducerIdRequest) -> None:
    if request.producer_id == NO_PRODUCER_ID:
        return
    is_rotated = (
        request.producer_id == known.previous_producer_id and request.producer_epoch >= EPOCH_OF_CLIENTS_MAX
    )
    if request.producer_id != known.producer_id and not is_rotated:
        raise _fenced(known, request)
    # An open transaction is its holder's: it must not be aborted by a request of the past.
    if known.state is TransactionState.ONGOING and request.producer_epoch != known.epoch:
        raise _fenced(known, request)


def _bump(
    ledger: Ledger, known: Transaction, fresh: Transaction, request: InitProducerIdRequest
) -> InitDecision:
    shows_itself = request.producer_id != NO_PRODUCER_ID
    is_current = request.producer_id == known.producer_id and request.producer_epoch == known.epoch
    if shows_itself and not is_current:
        if request.producer_epoch != known.last_epoch:
            raise _fenced(known, request)
        # Said before, and lost on the way.
        fresh.previous_producer_id = known.previous_producer_id
        return _initialized(ledger, fresh, known.last_epoch)
    last_epoch = known.epoch if shows_itself else NO_EPOCH
    if known.is_exhausted:
        fresh.producer_id, fresh.epoch = ledger.take_producer_id(), 0
    else:
        fresh.epoch = known.epoch + 1
    return _initialized(ledger, fresh, last_epoch)


def _initialized(ledger: Ledger, fresh: Transaction, last_epoch: int) -> InitDecision:
    reply = InitProducerIdResponse(producer_id=fresh.producer_id, producer_epoch=fresh.epoch)
    record = transaction_record(fresh, ledger.settings.transaction_version)
    return Decision(reply, records=[record], then=Initialized(fresh.id, last_epoch))


def _fenced(known: Transaction, request: InitProducerIdRequest) -> ApiError:
    return ApiError(
        ErrorCode.PRODUCER_FENCED,
        f"{known.id} is held by producer {known.producer_id} at epoch {known.epoch}, "
        f"not by {request.producer_id} at {request.producer_epoch}",
    )
