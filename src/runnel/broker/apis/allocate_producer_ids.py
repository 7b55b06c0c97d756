"""AllocateProducerIds: give a broker its next block of producer ids."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.controller.producer_ids import decide_allocate_producer_ids
from runnel.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse


@handles(AllocateProducerIdsRequest)
async def allocate_producer_ids(
    request: AllocateProducerIdsRequest, ctx: Context
) -> AllocateProducerIdsResponse:
    """Allocate a block of producer ids to a broker."""
    return await ctx.broker.metadata.change(lambda image: decide_allocate_producer_ids(image, request))
