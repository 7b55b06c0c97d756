"""Heartbeat in a classic group, and session expiration."""

from typing import Any

from runnel.coordinator.contract import CoordinatorResult, Moment
from runnel.coordinator.group.group import Group, GroupState
from runnel.coordinator.group.member import NEVER_MS, Member
from runnel.coordinator.group.rebalance import complete, rebalance_or_complete, remove_member
from runnel.coordinator.group.settings import GroupSettings
from runnel.messages.heartbeat import HeartbeatRequest
from runnel.model.errors import ApiError, ErrorCode


def heartbeat(groups: dict[str, Group], request: HeartbeatRequest, now_ms: int) -> ErrorCode:
    """Handle a Heartbeat; `now_ms` is monotonic time. Raises ApiError.

    It only extends a deadline, so it produces neither records nor effects.
    """
    group = groups.get(request.group_id)
    if group is None:
        error = ErrorCode.UNKNOWN_MEMBER_ID if request.group_id else ErrorCode.INVALID_GROUP_ID
        raise ApiError(error, f"group {request.group_id!r} does not exist")
    member = group.check_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise ApiError(ErrorCode.ILLEGAL_GENERATION, f"group {group.id} is at generation {group.generation}")
    member.record_heartbeat(now_ms)
    if group.state is GroupState.PREPARING:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def session_timer_fired(
    group: Group, member_id: str, settings: GroupSettings, now: Moment, result: CoordinatorResult[Any]
) -> None:
    """Expire the session of a member or a pending member id if its deadline has passed."""
    if member_id in group.pending:
        group.remove(member_id)
        _complete_if_all_joined(group, now, result)
        return
    member = group.members.get(member_id)
    if member is None:
        return
    if member.deadline_ms > now.steady_ms:
        member.timer_ms = member.deadline_ms
        result.set_timer(group.session_timer(member_id), member.deadline_ms - now.steady_ms)
    elif _is_waiting(group, member):
        # It has a parked request; its session restarts when the request is completed.
        member.deadline_ms = member.timer_ms = NEVER_MS
    else:
        remove_member(group, member, result)
        if group.state is GroupState.PREPARING:
            _complete_if_all_joined(group, now, result)
        else:
            rebalance_or_complete(group, settings, now, result)


def _is_waiting(group: Group, member: Member) -> bool:
    return not member.is_new and (member.id in group.joining or member.id in group.syncing)


def _complete_if_all_joined(group: Group, now: Moment, result: CoordinatorResult[Any]) -> None:
    if group.state is GroupState.PREPARING and group.has_all_joined:
        complete(group, now, result)
