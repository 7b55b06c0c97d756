"""SyncGroup: the leader hands in the assignment, everyone picks up their own."""

from dataclasses import dataclass
from typing import Any

from runnel.coordinator.contract import Decision, Moment
from runnel.coordinator.group.caller import Caller
from runnel.coordinator.group.group import Group, GroupState
from runnel.coordinator.group.rebalance import prepare, remove_member, touch
from runnel.coordinator.group.records import stable_record
from runnel.coordinator.group.replies import sync_accepted, sync_refused
from runnel.coordinator.group.settings import GroupSettings
from runnel.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from runnel.model.errors import ApiError, ErrorCode

_PROTOCOL_REQUIRED_FROM = 5


@dataclass(slots=True)
class Assigned:
    """Written: the assignment of a generation."""

    group_id: str
    leader: str


def sync(
    groups: dict[str, Group], request: SyncGroupRequest, caller: Caller, now: Moment
) -> Decision[SyncGroupResponse]:
    """Decide on a SyncGroup. Raises ApiError."""
    group = _check(groups, request, caller)
    member = group.check_member(request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise ApiError(ErrorCode.ILLEGAL_GENERATION, f"group {group.id} is at generation {group.generation}")
    is_same_type = request.protocol_type in (None, group.protocol_type)
    if not is_same_type or request.protocol_name not in (None, group.protocol):
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"group {group.id} runs {group.protocol}")
    if group.state is GroupState.PREPARING:
        raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, f"group {group.id} is rebalancing")
    decision = Decision[SyncGroupResponse]()
    group.unsynced.discard(member.id)
    if not group.unsynced:
        decision.cancel_timer(group.sync_timer)
    if group.state is GroupState.STABLE:
        decision.reply = sync_accepted(group, member)
        return decision
    forgotten = group.syncing.get(member.id)
    if forgotten is not None:
        decision.answer(forgotten, sync_refused(ErrorCode.REBALANCE_IN_PROGRESS))
    group.syncing[member.id] = caller.waiter
    if member.id == group.leader:
        assignments = {given.member_id: bytes(given.assignment) for given in request.assignments}
        members = group.members.values()
        decision.records.append(stable_record(group, group.leader, members, assignments, now.wall_ms))
        decision.then = Assigned(group.id, member.id)
    return decision


def assigned(group: Group | None, then: Assigned, error: ErrorCode | None, now: Moment) -> Decision[None]:
    """The log has the assignment: everyone who waits gets theirs. If not, only the leader learns of it."""
    decision = Decision[None]()
    if group is None:
        return decision
    if error is not None:
        # Nothing has changed: the leader can hand it in again, or its session will end the generation.
        decision.answer(group.syncing.pop(then.leader), sync_refused(error))
        return decision
    for member_id, waiter in group.syncing.items():
        member = group.members[member_id]
        decision.answer(waiter, sync_accepted(group, member))
        # Sessions that ended during the wait were overlooked, so they all begin again here.
        touch(group, member, member.session_timeout_ms, now, decision)
    group.syncing.clear()
    return decision


def sync_timer_fired(group: Group, settings: GroupSettings, now: Moment, decision: Decision[Any]) -> None:
    """Members that never asked for their assignment hold work that nobody does: they go."""
    if group.state not in (GroupState.COMPLETING, GroupState.STABLE) or not group.unsynced:
        return
    for member_id in sorted(group.unsynced):
        remove_member(group, group.members[member_id], decision)
    prepare(group, settings, now, decision)


def _check(groups: dict[str, Group], request: SyncGroupRequest, caller: Caller) -> Group:
    if not request.group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, "a group needs a name")
    has_protocol = request.protocol_type is not None and request.protocol_name is not None
    if caller.api_version >= _PROTOCOL_REQUIRED_FROM and not has_protocol:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the request names no protocol")
    group = groups.get(request.group_id)
    if group is None or group.state is GroupState.EMPTY:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {request.group_id} has no members")
    return group
