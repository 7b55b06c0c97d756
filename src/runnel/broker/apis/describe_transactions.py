"""DescribeTransactions: states of transactions."""

from functools import partial

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.promise import MaybePromise, gather
from runnel.coordinator.txn.shard import TransactionShard
from runnel.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from runnel.model.errors import ErrorCode


@handles(DescribeTransactionsRequest)
def describe_transactions(
    request: DescribeTransactionsRequest, ctx: Context
) -> MaybePromise[DescribeTransactionsResponse]:
    """Describe transactional ids; each has its own error code."""
    return gather(
        [_describe(transactional_id, ctx) for transactional_id in request.transactional_ids],
        lambda states: DescribeTransactionsResponse(transaction_states=states),
    )


def _describe(transactional_id: str, ctx: Context) -> MaybePromise[TransactionState]:
    refuse = partial(_refused, transactional_id)
    if not transactional_id:
        return refuse(ErrorCode.INVALID_REQUEST)
    if ctx.is_response_full:
        return refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def described(shard: TransactionShard) -> TransactionState:
        state = shard.describe(transactional_id)
        ctx.response_elements += 1 + sum(1 + len(topic.partitions) for topic in state.topics)
        return state

    return ctx.broker.transactions.read(transactional_id, described, refuse)


def _refused(transactional_id: str, error: ErrorCode) -> TransactionState:
    return TransactionState(error_code=error.code, transactional_id=transactional_id)
