"""ConsumerGroupHeartbeat: join a consumer group, stay in it, be assigned, and leave it (KIP-848)."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.promise import MaybePromise
from runnel.controller.features import GROUP_VERSION
from runnel.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from runnel.model.errors import ApiError, ErrorCode


@handles(ConsumerGroupHeartbeatRequest)
def consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, ctx: Context
) -> MaybePromise[ConsumerGroupHeartbeatResponse]:
    """Hear a member, and tell it what it may read.

    v1 regular expressions, and the member makes its own id
    """
    if not ctx.broker.metadata.image.features.get(GROUP_VERSION):
        return _refuse(ErrorCode.UNSUPPORTED_VERSION)
    try:
        driver = ctx.broker.groups.driver_of(request.group_id)
        caller = ctx.broker.groups.caller(ctx)
        decision = driver.shard.consumer_heartbeat(request, caller, driver.now())
    except ApiError as error:
        return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=str(error))
    return driver.decide(decision, _refuse)


def _refuse(error: ErrorCode) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error.code)
