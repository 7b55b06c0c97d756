"""A static member comes back: same instance id, new member id (KIP-345).

In a stable group whose protocol stays the same this is no rebalance: the member takes over the assignment of
its former self as soon as the log has its new id. In every other case the place is kept and all join again.
"""

from dataclasses import dataclass, replace
from typing import Any

from runnel.coordinator.contract import Decision, Moment
from runnel.coordinator.group.caller import Caller
from runnel.coordinator.group.group import Group, GroupState
from runnel.coordinator.group.member import Member, select_protocol
from runnel.coordinator.group.rebalance import maybe_complete, prepare, touch
from runnel.coordinator.group.records import stable_record
from runnel.coordinator.group.replies import join_accepted, join_refused, sync_refused
from runnel.coordinator.group.settings import GroupSettings
from runnel.model.errors import ErrorCode

_SKIP_ASSIGNMENT_FROM = 9


@dataclass(slots=True)
class StaticReturned:
    """Written: a static member holds its place under a new id."""

    group_id: str
    former_id: str
    former_leader: str | None
    member: Member
    waiter: int
    api_version: int


def return_static_member(
    group: Group,
    member: Member,
    former: Member,
    settings: GroupSettings,
    caller: Caller,
    now: Moment,
    decision: Decision[Any],
) -> None:
    """Put a member in the place of its former self."""
    if group.state is GroupState.STABLE and _keeps_protocol(group, member, former):
        _store(group, member, former, caller, decision)
        return
    _fence(group, former, decision)
    group.replace(replace(member, assignment=former.assignment), former.id)
    member = group.members[member.id]
    group.joining[member.id] = caller.waiter
    touch(group, member, member.session_timeout_ms, now, decision)
    if group.state is GroupState.PREPARING:
        maybe_complete(group, now, decision)
    else:
        # The leader may be assigning work to the former id right now, which nobody would receive.
        prepare(group, settings, now, decision)


def static_returned(
    group: Group | None, then: StaticReturned, error: ErrorCode | None, now: Moment
) -> Decision[None]:
    """The log has the new id: answer its holder with the generation that it slipped into."""
    decision = Decision[None]()
    if error is not None or group is None:
        decision.answer(then.waiter, join_refused(error or ErrorCode.UNKNOWN_SERVER_ERROR))
        return decision
    stored = group.members[then.member.id]
    group.set_protocols(stored, then.member.protocols)
    touch(group, stored, stored.session_timeout_ms, now, decision)
    decision.cancel_timer(group.session_timer(then.former_id))
    group.unsynced.discard(then.former_id)
    is_leader = group.leader == stored.id
    if then.api_version >= _SKIP_ASSIGNMENT_FROM:
        decision.answer(then.waiter, join_accepted(group, stored.id, skip_assignment=is_leader))
    else:
        # Such a client would assign anew if it were told that it leads, and nobody waits for that.
        response = join_accepted(group, stored.id)
        response.leader = then.former_leader or ""
        response.members = []
        decision.answer(then.waiter, response)
    return decision


def _keeps_protocol(group: Group, member: Member, former: Member) -> bool:
    wishes = [member.protocols if other is former else other.protocols for other in group.members.values()]
    return select_protocol(wishes) == group.protocol


def _store(group: Group, member: Member, former: Member, caller: Caller, decision: Decision[Any]) -> None:
    members = [member if other is former else other for other in group.members.values()]
    assignments = {other.id: other.assignment for other in group.members.values()}
    assignments[member.id] = former.assignment
    leader = member.id if group.leader == former.id else group.leader
    decision.records.append(stable_record(group, leader, members, assignments, group.state_since_ms))
    decision.then = StaticReturned(
        group.id, former.id, group.leader, member, caller.waiter, caller.api_version
    )


def _fence(group: Group, former: Member, decision: Decision[Any]) -> None:
    """Whoever still waits under the former id must not go on."""
    waiter = group.joining.pop(former.id, None)
    if waiter is not None:
        decision.answer(waiter, join_refused(ErrorCode.FENCED_INSTANCE_ID, former.id))
    waiter = group.syncing.pop(former.id, None)
    if waiter is not None:
        decision.answer(waiter, sync_refused(ErrorCode.FENCED_INSTANCE_ID))
    decision.cancel_timer(group.session_timer(former.id))
