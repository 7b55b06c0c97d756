"""Heartbeat: keep a member of a classic group alive."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.group_coordinator import GroupDriver
from runnel.broker.runtime.promise import MaybePromise
from runnel.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from runnel.model.errors import ApiError, ErrorCode


@handles(HeartbeatRequest)
def heartbeat(request: HeartbeatRequest, ctx: Context) -> MaybePromise[HeartbeatResponse]:
    """Extend a member's session and signal rebalances.

    v1 throttle time · v3 static members · v4 flexible
    """
    try:
        driver = ctx.broker.groups.driver_of(request.group_id)
    except ApiError as api_error:
        if api_error.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # The group is loading; its members get a full session timeout afterwards.
            return HeartbeatResponse()
        return _response(api_error.error)
    if driver.shard.has_consumer_group(request.group_id):
        return _in_consumer_group(request, driver)
    try:
        error = driver.shard.heartbeat(request, ctx.broker.clock.monotonic_ms())
    except ApiError as api_error:
        error = api_error.error
    return driver.hold(_response(error), _response)


def _in_consumer_group(request: HeartbeatRequest, driver: GroupDriver) -> MaybePromise[HeartbeatResponse]:
    try:
        decision = driver.shard.heartbeat_in_consumer_group(request)
    except ApiError as error:
        return driver.hold(_response(error.error), _response)
    return driver.decide(decision, _response)


def _response(error: ErrorCode) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=error.code)
