"""ListTransactions: transactions coordinated by this broker."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.patterns import compiled
from runnel.broker.runtime.promise import MaybePromise, gather
from runnel.broker.runtime.transaction_coordinator import TransactionDriver
from runnel.coordinator.txn.describe import STATES
from runnel.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from runnel.model.errors import ApiError, ErrorCode


@handles(ListTransactionsRequest)
def list_transactions(
    request: ListTransactionsRequest, ctx: Context
) -> MaybePromise[ListTransactionsResponse]:
    """List transactional ids that match the filters.

    v1 duration filter · v2 transactional id pattern
    """
    try:
        drivers = ctx.broker.transactions.all_loaded()
        pattern = request.transactional_id_pattern
        matches = compiled(pattern).fullmatch if pattern else None
    except ApiError as api_error:
        return ListTransactionsResponse(error_code=api_error.code)
    except ValueError:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION.code)
    states = {STATES[name] for name in request.state_filters if name in STATES}
    unknown = [name for name in request.state_filters if name not in STATES]
    producer_ids = frozenset(request.producer_id_filters)

    def refuse(error: ErrorCode) -> ListTransactionsResponse:
        return ListTransactionsResponse(error_code=error.code)

    def list_of(driver: TransactionDriver) -> MaybePromise[ListTransactionsResponse]:
        listed = driver.shard.list_transactions(
            states if request.state_filters else None,
            producer_ids,
            request.duration_filter,
            matches,
            driver.now().wall_ms,
        )
        return driver.hold(ListTransactionsResponse(transaction_states=listed), refuse)

    def combine(parts: list[ListTransactionsResponse]) -> ListTransactionsResponse:
        refused = next((part for part in parts if part.error_code), None)
        listed = [state for part in parts for state in part.transaction_states]
        return refused or ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=listed)

    return gather(map(list_of, drivers), combine)
