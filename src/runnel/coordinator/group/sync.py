"""SyncGroup in a classic group."""

from dataclasses import dataclass
from typing import Any

from runnel.coordinator.contract import CoordinatorResult, Moment
from runnel.coordinator.group.context import RequestContext
from runnel.coordinator.group.group import Group, GroupState
from runnel.coordinator.group.rebalance import extend_session, prepare, remove_member
from runnel.coordinator.group.records import stable_record
from runnel.coordinator.group.responses import sync_group_error, sync_group_response
from runnel.coordinator.group.settings import GroupSettings
from runnel.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from runnel.model.errors import ApiError, ErrorCode

_PROTOCOL_REQUIRED_FROM = 5


@dataclass(slots=True)
class Assigned:
    """Continuation: the assignment of a generation was written."""

    group_id: str
    leader: str


def sync(
    groups: dict[str, Group], request: SyncGroupRequest, context: RequestContext, now: Moment
) -> CoordinatorResult[SyncGroupResponse]:
    """Handle a SyncGroup. Raises ApiError."""
    group = _check(groups, request, context)
    member = group.check_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise ApiError(ErrorCode.ILLEGAL_GENERATION, f"group {group.id} is at generation {group.generation}")
    is_same_type = request.protocol_type in (None, group.protocol_type)
    if not is_same_type or request.protocol_name not in (None, group.protocol):
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"group {group.id} uses protocol {group.protocol}"
        )
    if group.state is GroupState.PREPARING:
        raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, f"group {group.id} is rebalancing")
    result = CoordinatorResult[SyncGroupResponse]()
    group.unsynced.discard(member.id)
    if not group.unsynced:
        result.cancel_timer(group.sync_timer)
    if group.state is GroupState.STABLE:
        result.response = sync_group_response(group, member)
        return result
    superseded = group.syncing.get(member.id)
    if superseded is not None:
        result.respond(superseded, sync_group_error(ErrorCode.REBALANCE_IN_PROGRESS))
    group.syncing[member.id] = context.waiter
    if member.id == group.leader:
        assignments = {given.member_id: bytes(given.assignment) for given in request.assignments}
        members = group.members.values()
        result.records.append(stable_record(group, group.leader, members, assignments, now.wall_ms))
        result.continuation = Assigned(group.id, member.id)
    return result


def assigned(
    group: Group | None, continuation: Assigned, error: ErrorCode | None, now: Moment
) -> CoordinatorResult[None]:
    """Complete the parked SyncGroup requests; if the append failed, only the leader's fails."""
    result = CoordinatorResult[None]()
    if group is None:
        return result
    if error is not None:
        # Nothing has changed: the leader can retry, or its session expires.
        result.respond(group.syncing.pop(continuation.leader), sync_group_error(error))
        return result
    for member_id, waiter in group.syncing.items():
        member = group.members[member_id]
        result.respond(waiter, sync_group_response(group, member))
        # Sessions do not expire while requests are parked, so all of them restart here.
        extend_session(group, member, member.session_timeout_ms, now, result)
    group.syncing.clear()
    return result


def sync_timer_fired(
    group: Group, settings: GroupSettings, now: Moment, result: CoordinatorResult[Any]
) -> None:
    """Remove members that have not sent SyncGroup, because no one consumes their partitions."""
    if group.state not in (GroupState.COMPLETING, GroupState.STABLE) or not group.unsynced:
        return
    for member_id in sorted(group.unsynced):
        remove_member(group, group.members[member_id], result)
    prepare(group, settings, now, result)


def _check(groups: dict[str, Group], request: SyncGroupRequest, context: RequestContext) -> Group:
    if not request.group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    has_protocol = request.protocol_type is not None and request.protocol_name is not None
    if context.api_version >= _PROTOCOL_REQUIRED_FROM and not has_protocol:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the request has no protocol type or name")
    group = groups.get(request.group_id)
    if group is None or group.state is GroupState.EMPTY:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {request.group_id} has no members")
    return group
