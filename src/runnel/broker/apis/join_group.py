"""JoinGroup: join a classic group or its next generation."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.promise import MaybePromise
from runnel.coordinator.group.responses import join_group_error
from runnel.messages.join_group import JoinGroupRequest, JoinGroupResponse
from runnel.model.errors import ErrorCode
from runnel.model.limits import MEMBER_METADATA_BYTES_MAX, SLICE_ELEMENTS


@handles(JoinGroupRequest)
def join_group(request: JoinGroupRequest, ctx: Context) -> MaybePromise[JoinGroupResponse]:
    """Join a group; the response is sent when the next generation starts.

    v1 rebalance timeout · v2 throttle time · v4 MEMBER_ID_REQUIRED · v5 static members ·
    v6 flexible · v7 protocol type · v8 reason · v9 skip assignment for static leaders
    """
    metadata_bytes = sum(len(protocol.metadata) for protocol in request.protocols)
    if metadata_bytes > MEMBER_METADATA_BYTES_MAX or len(request.protocols) > SLICE_ELEMENTS:
        return join_group_error(ErrorCode.INVALID_REQUEST, request.member_id)
    return ctx.broker.groups.write_or_park(
        request.group_id,
        ctx,
        lambda driver, caller: driver.shard.join(request, caller, driver.now()),
        lambda error: join_group_error(error, request.member_id),
    )
