"""EndTxn: commit or abort a transaction."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.promise import MaybePromise
from runnel.broker.runtime.transaction_coordinator import error_for_version
from runnel.coordinator.txn.end_txn import end_txn_error
from runnel.messages.end_txn import EndTxnRequest, EndTxnResponse
from runnel.model.errors import ErrorCode

_FENCED_VERSION = 2


@handles(EndTxnRequest)
def end_txn(request: EndTxnRequest, ctx: Context) -> MaybePromise[EndTxnResponse]:
    """The response follows the commit of the prepare record; markers are written afterwards.

    v2 PRODUCER_FENCED · v3 flexible · v5 epoch bump per transaction (KIP-890)
    """
    if not request.transactional_id:
        return end_txn_error(ErrorCode.INVALID_REQUEST)
    return ctx.broker.transactions.decide(
        request.transactional_id,
        lambda driver: driver.shard.end(request, ctx.api_version, driver.now()),
        lambda error: end_txn_error(error_for_version(error, ctx.api_version, _FENCED_VERSION)),
    )
