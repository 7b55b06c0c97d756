"""InitProducerId: give a producer the identity by which its repeats are recognised."""

from runnel.broker.context import Context
from runnel.broker.handlers import handles
from runnel.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from runnel.model.errors import ErrorCode


@handles(InitProducerIdRequest)
async def init_producer_id(request: InitProducerIdRequest, ctx: Context) -> InitProducerIdResponse:
    """A fresh id at epoch 0 for an idempotent producer.

    v2 flexible · v3 the producer may show its current id and epoch · v4 PRODUCER_FENCED · v5 KIP-890
    """
    shows_id, shows_epoch = request.producer_id != -1, request.producer_epoch != -1
    if request.transactional_id == "" or shows_id != shows_epoch:
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        # Final for every client, where a coordinator error would be retried for ever.
        return _refused(ErrorCode.UNSUPPORTED_VERSION)
    return InitProducerIdResponse(producer_id=await ctx.broker.producer_ids.take(), producer_epoch=0)


def _refused(error: ErrorCode) -> InitProducerIdResponse:
    # Epoch 0 beside an error would be a valid epoch.
    return InitProducerIdResponse(error_code=error.code, producer_id=-1, producer_epoch=-1)
