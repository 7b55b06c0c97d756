"""AllocateProducerIds: blocks of producer ids for brokers."""

from runnel.controller.broker_heartbeats import registered_broker
from runnel.controller.image import MetadataImage
from runnel.controller.result import ControllerResult
from runnel.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from runnel.model.errors import ApiError, ErrorCode
from runnel.schemas.metadata import ProducerIdsRecord

BLOCK_SIZE = 1000
"""As in Kafka: a crash wastes at most one block, and one producer in a thousand has to wait."""
LONG_MAX = 2**63 - 1


def decide_allocate_producer_ids(
    image: MetadataImage, request: AllocateProducerIdsRequest
) -> ControllerResult[AllocateProducerIdsResponse]:
    """Give the next block to a broker. The record holds the first id of the block after it."""
    registered_broker(image, request.broker_id, request.broker_epoch)
    first = image.next_producer_id
    if first > LONG_MAX - BLOCK_SIZE:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "Exhausted all producerIds.")
    record = ProducerIdsRecord(request.broker_id, request.broker_epoch, first + BLOCK_SIZE)
    response = AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK_SIZE)
    return ControllerResult([record], response)
