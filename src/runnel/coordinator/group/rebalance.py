"""The two halves of a rebalance: wait until the members have joined, then begin the next generation.

Everything here is soft, except the end: a generation without members is a fact for the log, and the group is
empty when the log has it.
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
    """Written: the last member is gone."""

    group_id: str


def extend_session(
    group: Group, member: Member, timeout_ms: int, now: Moment, result: CoordinatorResult[Any]
) -> None:
    """A sign of life: the member may be silent for this long."""
    member.deadline_ms = now.steady_ms + timeout_ms
    # Heartbeats push the deadline out and leave the timer alone; when it fires it is set for the rest.
    if member.deadline_ms < member.timer_ms:
        member.timer_ms = member.deadline_ms
        result.set_timer(group.session_timer(member.id), timeout_ms)


def rebalance_or_complete(
    group: Group, settings: GroupSettings, now: Moment, result: CoordinatorResult[Any]
) -> None:
    """The membership changed: begin a rebalance, or go on with the one that is under way."""
    if group.can_rebalance:
        prepare(group, settings, now, result)
    else:
        maybe_complete(group, now, result)


def prepare(group: Group, settings: GroupSettings, now: Moment, result: CoordinatorResult[Any]) -> None:
    """Ask everyone to join again; a group that was empty waits a little for more members (KIP-134)."""
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
    """Begin the generation if nobody is missing; the first one waits for its delay in any case."""
    is_initial = group.previous_state is GroupState.EMPTY
    if group.state is GroupState.PREPARING and not is_initial and group.has_all_joined:
        complete(group, now, result)


def join_timer_fired(
    group: Group, settings: GroupSettings, now: Moment, result: CoordinatorResult[Any]
) -> None:
    """Time to join is up, or the initial delay is over."""
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
    """Let go of those who did not join, and begin the next generation with the rest."""
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
        # Only static members are left and none has come yet; their sessions will end, or they will come.
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
    """The log took the last generation's end, or it will be offered again."""
    result = CoordinatorResult[None]()
    if error is not None and group is not None and group.state is GroupState.PREPARING:
        result.set_timer(group.join_timer, WRITE_RETRY_MS)
    return result


def remove_member(group: Group, member: Member, result: CoordinatorResult[Any]) -> None:
    """A member left or died; if it waits for something, its client may come again as a new one."""
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
