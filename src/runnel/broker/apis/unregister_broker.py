"""UnregisterBroker: remove the registration of a decommissioned broker."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.controller.image import MetadataImage
from runnel.controller.result import ControllerResult
from runnel.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from runnel.model.errors import ApiError, ErrorCode
from runnel.schemas.metadata import UnregisterBrokerRecord


@handles(UnregisterBrokerRequest)
async def unregister_broker(request: UnregisterBrokerRequest, ctx: Context) -> UnregisterBrokerResponse:
    """Only for stopped brokers: a live one would register again and lose its partitions."""

    def decide(image: MetadataImage) -> ControllerResult[UnregisterBrokerResponse]:
        broker = image.brokers.get(request.broker_id)
        if broker is None:
            raise ApiError(
                ErrorCode.BROKER_ID_NOT_REGISTERED,
                f"Broker ID {request.broker_id} is not currently registered",
            )
        if not broker.is_fenced:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Broker {broker.id} is running; stop it first.")
        record = UnregisterBrokerRecord(broker.id, broker.epoch)
        return ControllerResult([record], UnregisterBrokerResponse(error_message=None))

    return await ctx.broker.metadata.change(decide)
