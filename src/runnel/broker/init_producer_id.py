"""InitProducerId: give a producer the identity by which its repeats are recognised."""

from runnel.broker.context import Context
from runnel.broker.handlers import handles
from runnel.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from runnel.model.errors import ErrorCode, Refused


@handles(InitProducerIdRequest)
async def init_producer_id(request: InitProducerIdRequest, ctx: Context) -> InitProducerIdResponse:
    """A fresh id at epoch 0 for an idempotent producer.

    v2 flexible · v3 the producer may show its current id and epoch · v4 PRODUCER_FENCED · v5 KIP-890
    """
    if request.transactional_id == "":
        raise Refused(ErrorCode.INVALID_REQUEST, "a transactional id cannot be empty")
    if request.transactional_id is not None:
        # Final for every client, where a coordinator error would be retried for ever.
        raise Refused(ErrorCode.UNSUPPORTED_VERSION, "transactions are not available on this broker")
    return InitProducerIdResponse(producer_id=await ctx.broker.producer_ids.take(), producer_epoch=0)
