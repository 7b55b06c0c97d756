"""UnregisterBroker: remove the registration of a decommissioned broker."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.controller.registrations import remove_broker
from runnel.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from runnel.model.errors import ApiError, ErrorCode


@handles(UnregisterBrokerRequest)
async def unregister_broker(request: UnregisterBrokerRequest, ctx: Context) -> UnregisterBrokerResponse:
    """Only for stopped brokers: a live one would register again, and its partitions fail over meanwhile."""
    broker = ctx.broker
    known = broker.metadata.image.brokers.get(request.broker_id)
    if known is not None and not known.is_fenced:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Broker {known.id} is running; stop it first.")
    sessions, settings = broker.duties.sessions, broker.settings
    return await broker.metadata.change_in_steps(
        lambda image: remove_broker(image, settings, sessions, request)
    )
