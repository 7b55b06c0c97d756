"""InitProducerId: allocate a producer id and epoch."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.promise import MaybePromise
from runnel.broker.runtime.transaction_coordinator import error_for_version
from runnel.coordinator.txn.init import init_producer_id_error
from runnel.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from runnel.model.errors import ErrorCode

_FENCED_VERSION = 4


@handles(InitProducerIdRequest)
def init_producer_id(request: InitProducerIdRequest, ctx: Context) -> MaybePromise[InitProducerIdResponse]:
    """A new id at epoch 0 for idempotent producers; the coordinator decides for transactional ones.

    v2 flexible · v3 current producer id and epoch · v4 PRODUCER_FENCED · v5 KIP-890
    """
    has_id, has_epoch = request.producer_id != -1, request.producer_epoch != -1
    if request.transactional_id == "" or has_id != has_epoch:
        return init_producer_id_error(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is None:
        return ctx.broker.run(_idempotent(ctx))
    return ctx.broker.transactions.decide(
        request.transactional_id,
        lambda driver: driver.shard.init_producer_id(request, driver.now()),
        lambda error: init_producer_id_error(error_for_version(error, ctx.api_version, _FENCED_VERSION)),
    )


async def _idempotent(ctx: Context) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=await ctx.broker.producer_ids.take(), producer_epoch=0)
