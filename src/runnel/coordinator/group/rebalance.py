"""The two phases of a rebalance: wait until the members have joined, then start the next generation.

This state is soft, except that a generation without members is written to the log; the group becomes Empty
when the record is replayed.
"""

from dataclasses import dataclass
from typing import Any

from runnel.coordinator.contract import CoordinatorResult, Moment
from runnel.coordinator.group.group import Group, GroupState
from runnel.coordinator.group.member import Member
from runnel.coordinator.group.records import empty_record
from runnel.coordinator.group.responses import join_group_error, join_group_response, sync_group_error
from runnel.coordinator.group.settings import WRITE_RETRY_MS, GroupSettings
from runnel.model.errors import ErrorCode


@dataclass(slots=True)
class GroupEmptied:
    """Continuation: the group was written as empty."""

    group_id: str


def extend_session(
    group: Group, member: Member, timeout_ms: int, now: Moment, result: CoordinatorResult[Any]
) -> None:
    """Set the deadline of a member's session."""
    member.deadline_ms = now.steady_ms + timeout_ms
    # Heartbeats move only the deadline; when the timer fires it is set again for the remaining time.
    if member.deadline_ms < member.timer_ms:
        member.timer_ms = member.deadline_ms
        result.set_timer(group.session_timer(member.id), timeout_ms)


def rebalance_or_complete(
    group: Group, settings: GroupSettings, now: Moment, result: CoordinatorResult[Any]
) -> None:
    """The membership changed: start a rebalance, or continue the current one."""
    if group.can_rebalance:
        prepare(group, settings, now, result)
    else:
        maybe_complete(group, now, result)


def prepare(group: Group, settings: GroupSettings, now: Moment, result: CoordinatorResult[Any]) -> None:
    """Start a rebalance; a group that was empty waits for more members (KIP-134)."""
    if group.state is GroupState.COMPLETING:
        _drop_assignment(group, now, result)
    group.unsynced.clear()
    result.cancel_timer(group.sync_timer)
    is_initial = group.state is GroupState.EMPTY
    group.enter(GroupState.PREPARING, now.wall_ms)
    if is_initial:
        group.new_member_added = False
        group.initial_delay_ms = settings.initial_rebalance_delay_ms
        group.initial_remaining_ms = max(group.rebalance_timeout_ms - group.initial_delay_ms, 0)
        result.set_timer(group.join_timer, group.initial_delay_ms)
    elif group.has_all_joined:
        complete(group, now, result)
    else:
        result.set_timer(group.join_timer, group.rebalance_timeout_ms)


def maybe_complete(group: Group, now: Moment, result: CoordinatorResult[Any]) -> None:
    """Start the generation if all members have joined; the first one always waits for the initial delay."""
    is_initial = group.previous_state is GroupState.EMPTY
    if group.state is GroupState.PREPARING and not is_initial and group.has_all_joined:
        complete(group, now, result)


def join_timer_fired(
    group: Group, settings: GroupSettings, now: Moment, result: CoordinatorResult[Any]
) -> None:
    """The rebalance timeout or the initial delay has elapsed."""
    if group.state is not GroupState.PREPARING:
        return
    if group.previous_state is GroupState.EMPTY and group.new_member_added and group.initial_remaining_ms:
        group.new_member_added = False
        delay_ms = min(settings.initial_rebalance_delay_ms, group.initial_remaining_ms)
        group.initial_remaining_ms = max(group.initial_remaining_ms - group.initial_delay_ms, 0)
        group.initial_delay_ms = delay_ms
        result.set_timer(group.join_timer, delay_ms)
    else:
        complete(group, now, result)


def complete(group: Group, now: Moment, result: CoordinatorResult[Any]) -> None:
    """Remove members that have not rejoined, and start the next generation with the others."""
    result.cancel_timer(group.join_timer)
    late = [
        member for member in group.members.values() if member.id not in group.joining and not member.is_static
    ]
    for member in late:
        group.remove(member.id)
        result.cancel_timer(group.session_timer(member.id))
    if not group.members:
        result.records.append(empty_record(group, now.wall_ms))
        result.continuation = GroupEmptied(group.id)
    elif not group.elect_joined_leader():
        # Only static members are left and none has rejoined yet; they will, or their sessions expire.
        result.set_timer(group.join_timer, group.rebalance_timeout_ms)
    else:
        group.begin_generation(now.wall_ms)
        for member in group.members.values():
            waiter = group.joining.pop(member.id, None)
            if waiter is not None:
                result.respond(waiter, join_group_response(group, member.id))
            member.is_new = False
            extend_session(group, member, member.session_timeout_ms, now, result)
        result.set_timer(group.sync_timer, group.rebalance_timeout_ms)


def emptied(group: Group | None, error: ErrorCode | None) -> CoordinatorResult[None]:
    """Retry if the empty generation could not be appended."""
    result = CoordinatorResult[None]()
    if error is not None and group is not None and group.state is GroupState.PREPARING:
        result.set_timer(group.join_timer, WRITE_RETRY_MS)
    return result


def remove_member(group: Group, member: Member, result: CoordinatorResult[Any]) -> None:
    """Remove a member that left or expired, and fail its parked requests."""
    waiter = group.joining.pop(member.id, None)
    if waiter is not None:
        result.respond(waiter, join_group_error(ErrorCode.UNKNOWN_MEMBER_ID))
    waiter = group.syncing.pop(member.id, None)
    if waiter is not None:
        result.respond(waiter, sync_group_error(ErrorCode.UNKNOWN_MEMBER_ID))
    group.remove(member.id)
    result.cancel_timer(group.session_timer(member.id))


def _drop_assignment(group: Group, now: Moment, result: CoordinatorResult[Any]) -> None:
    for member in group.members.values():
        member.assignment = b""
    for member_id, waiter in group.syncing.items():
        result.respond(waiter, sync_group_error(ErrorCode.REBALANCE_IN_PROGRESS))
        member = group.members[member_id]
        extend_session(group, member, member.session_timeout_ms, now, result)
    group.syncing.clear()
