"""ControllerRegistration: a controller reports its listeners and features."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.controller.registrations import decide_controller_registration
from runnel.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)


@handles(ControllerRegistrationRequest)
async def controller_registration(
    request: ControllerRegistrationRequest, ctx: Context
) -> ControllerRegistrationResponse:
    """Register a controller, or change its registration."""
    return await ctx.broker.metadata.change(lambda image: decide_controller_registration(image, request))
