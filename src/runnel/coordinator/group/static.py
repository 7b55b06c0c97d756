"""A static member rejoins with the same instance id and a new member id (KIP-345).

In a stable group whose protocol does not change this triggers no rebalance: the member takes over the
assignment of its predecessor once its new id is appended. Otherwise the group rebalances.
"""

from dataclasses import dataclass, replace
from typing import Any

from runnel.coordinator.contract import CoordinatorResult, Moment
from runnel.coordinator.group.context import RequestContext
from runnel.coordinator.group.group import Group, GroupState
from runnel.coordinator.group.member import Member, select_protocol
from runnel.coordinator.group.rebalance import extend_session, maybe_complete, prepare
from runnel.coordinator.group.records import stable_record
from runnel.coordinator.group.responses import join_group_error, join_group_response, sync_group_error
from runnel.coordinator.group.settings import GroupSettings
from runnel.model.errors import ErrorCode

_SKIP_ASSIGNMENT_FROM = 9


@dataclass(slots=True)
class StaticMemberReplaced:
    """Continuation: a static member was written with a new member id."""

    group_id: str
    former_id: str
    former_leader: str | None
    member: Member
    waiter: int
    api_version: int


def replace_static_member(
    group: Group,
    member: Member,
    former: Member,
    settings: GroupSettings,
    context: RequestContext,
    now: Moment,
    result: CoordinatorResult[Any],
) -> None:
    """Replace the previous member with the same instance id."""
    if group.state is GroupState.STABLE and _keeps_protocol(group, member, former):
        _write_replacement(group, member, former, context, result)
        return
    _fence(group, former, result)
    group.replace(replace(member, assignment=former.assignment), former.id)
    member = group.members[member.id]
    group.joining[member.id] = context.waiter
    extend_session(group, member, member.session_timeout_ms, now, result)
    if group.state is GroupState.PREPARING:
        maybe_complete(group, now, result)
    else:
        # The leader may be computing an assignment for the former id, which would be lost.
        prepare(group, settings, now, result)


def static_member_replaced(
    group: Group | None, continuation: StaticMemberReplaced, error: ErrorCode | None, now: Moment
) -> CoordinatorResult[None]:
    """Complete the join of a replaced static member in the current generation."""
    result = CoordinatorResult[None]()
    if error is not None or group is None:
        result.respond(continuation.waiter, join_group_error(error or ErrorCode.UNKNOWN_SERVER_ERROR))
        return result
    stored = group.members[continuation.member.id]
    group.set_protocols(stored, continuation.member.protocols)
    extend_session(group, stored, stored.session_timeout_ms, now, result)
    result.cancel_timer(group.session_timer(continuation.former_id))
    group.unsynced.discard(continuation.former_id)
    is_leader = group.leader == stored.id
    if continuation.api_version >= _SKIP_ASSIGNMENT_FROM:
        result.respond(continuation.waiter, join_group_response(group, stored.id, skip_assignment=is_leader))
    else:
        # Such a client would compute a new assignment if it were the leader, without a rebalance.
        response = join_group_response(group, stored.id)
        response.leader = continuation.former_leader or ""
        response.members = []
        result.respond(continuation.waiter, response)
    return result


def _keeps_protocol(group: Group, member: Member, former: Member) -> bool:
    preferences = [
        member.protocols if other is former else other.protocols for other in group.members.values()
    ]
    return select_protocol(preferences) == group.protocol


def _write_replacement(
    group: Group, member: Member, former: Member, context: RequestContext, result: CoordinatorResult[Any]
) -> None:
    members = [member if other is former else other for other in group.members.values()]
    assignments = {other.id: other.assignment for other in group.members.values()}
    assignments[member.id] = former.assignment
    leader = member.id if group.leader == former.id else group.leader
    result.records.append(stable_record(group, leader, members, assignments, group.state_since_ms))
    result.continuation = StaticMemberReplaced(
        group.id, former.id, group.leader, member, context.waiter, context.api_version
    )


def _fence(group: Group, former: Member, result: CoordinatorResult[Any]) -> None:
    """Fail the parked requests of the former member id."""
    waiter = group.joining.pop(former.id, None)
    if waiter is not None:
        result.respond(waiter, join_group_error(ErrorCode.FENCED_INSTANCE_ID, former.id))
    waiter = group.syncing.pop(former.id, None)
    if waiter is not None:
        result.respond(waiter, sync_group_error(ErrorCode.FENCED_INSTANCE_ID))
    result.cancel_timer(group.session_timer(former.id))
