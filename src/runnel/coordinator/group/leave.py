"""LeaveGroup in a classic group."""

from typing import Any

from runnel.coordinator.contract import CoordinatorResult, Moment
from runnel.coordinator.group.group import Group, GroupState
from runnel.coordinator.group.rebalance import maybe_complete, rebalance_or_complete, remove_member
from runnel.coordinator.group.settings import GroupSettings
from runnel.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from runnel.model.errors import ApiError, ErrorCode


def leave(
    groups: dict[str, Group], settings: GroupSettings, request: LeaveGroupRequest, now: Moment
) -> CoordinatorResult[LeaveGroupResponse]:
    """Handle a LeaveGroup whose members are all in `members`. Raises ApiError."""
    if not request.group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    group = groups.get(request.group_id)
    result = CoordinatorResult[LeaveGroupResponse]()
    responses = [_leave_one(group, identity, result) for identity in request.members]
    has_changed = any(response.error_code == 0 for response in responses)
    if group is not None and has_changed:
        if group.state in (GroupState.STABLE, GroupState.COMPLETING):
            rebalance_or_complete(group, settings, now, result)
        else:
            maybe_complete(group, now, result)
    result.response = LeaveGroupResponse(members=responses)
    return result


def _leave_one(
    group: Group | None, identity: MemberIdentity, result: CoordinatorResult[Any]
) -> MemberResponse:
    response = MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id)
    try:
        _remove(group, identity, result)
    except ApiError as error:
        response.error_code = error.code
    return response


def _remove(group: Group | None, identity: MemberIdentity, result: CoordinatorResult[Any]) -> None:
    unknown = ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"the group has no member {identity.member_id}")
    if group is None:
        raise unknown
    member_id = identity.member_id
    if not member_id:
        # Admin clients specify only the instance id.
        member_id = group.static_members.get(identity.group_instance_id or "", "")
        if not member_id:
            raise unknown
        remove_member(group, group.members[member_id], result)
    elif member_id in group.pending:
        group.remove(member_id)
        result.cancel_timer(group.session_timer(member_id))
    else:
        remove_member(group, group.check_member(member_id, identity.group_instance_id), result)
