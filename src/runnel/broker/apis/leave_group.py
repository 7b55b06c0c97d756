"""LeaveGroup: remove members before their sessions expire."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.group_coordinator import GroupDriver
from runnel.broker.runtime.promise import MaybePromise
from runnel.coordinator.contract import CoordinatorResult
from runnel.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

_BATCHED_VERSION = 3


@handles(LeaveGroupRequest)
def leave_group(request: LeaveGroupRequest, ctx: Context) -> MaybePromise[LeaveGroupResponse]:
    """Remove members from a group.

    v1 throttle time · v3 batched, static members by instance id · v4 flexible ·
    v5 reason
    """
    is_single = ctx.api_version < _BATCHED_VERSION
    if is_single:
        request.members = [MemberIdentity(member_id=request.member_id)]

    def decide(driver: GroupDriver) -> CoordinatorResult[LeaveGroupResponse]:
        decision = driver.shard.leave(request, driver.now())
        if is_single and decision.response is not None:
            decision.response.error_code = decision.response.members[0].error_code
        return decision

    return ctx.broker.groups.write(
        request.group_id, decide, lambda error: LeaveGroupResponse(error_code=error.code)
    )
