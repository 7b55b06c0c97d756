"""EndTxn: commit or abort a transaction."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.promise import MaybePromise
from runnel.broker.runtime.transactions import told_as
from runnel.coordinator.txn.end_txn import end_txn_error
from runnel.messages.end_txn import EndTxnRequest, EndTxnResponse
from runnel.model.errors import ErrorCode

_FENCED_FROM = 2


@handles(EndTxnRequest)
def end_txn(request: EndTxnRequest, ctx: Context) -> MaybePromise[EndTxnResponse]:
    """Answered when the end is committed; the partitions are told after that.

    v2 PRODUCER_FENCED · v3 flexible · v5 the next transaction has an epoch of its own (KIP-890)
    """
    if not request.transactional_id:
        return end_txn_error(ErrorCode.INVALID_REQUEST)
    return ctx.broker.transactions.decide(
        request.transactional_id,
        lambda driver: driver.shard.end(request, ctx.api_version, driver.now()),
        lambda error: end_txn_error(told_as(error, ctx.api_version, _FENCED_FROM)),
    )
