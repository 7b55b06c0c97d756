"""ListTransactions: the transactions that this broker keeps."""

from typing import Any

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.patterns import compiled
from runnel.broker.runtime.shards import gather
from runnel.coordinator.txn.describe import STATES
from runnel.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from runnel.model.errors import ApiError, ErrorCode


@handles(ListTransactionsRequest)
def list_transactions(request: ListTransactionsRequest, ctx: Context) -> Any:
    """All transactional ids that pass the filters.

    v1 by duration · v2 by a pattern of the id
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

    def combine(parts: list[Any]) -> ListTransactionsResponse:
        listed: list[TransactionState] = []
        for part in parts:
            if isinstance(part, ErrorCode):
                return ListTransactionsResponse(error_code=part.code)
            listed += part
        return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=listed)

    return gather(
        [
            driver.hold(
                driver.shard.list_transactions(
                    states if request.state_filters else None,
                    producer_ids,
                    request.duration_filter,
                    matches,
                    driver.now().wall_ms,
                ),
                lambda error: error,
            )
            for driver in drivers
        ],
        combine,
    )
