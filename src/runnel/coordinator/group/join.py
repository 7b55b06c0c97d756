"""JoinGroup in a classic group.

* Without a member id, dynamic: since v4 an id is returned with MEMBER_ID_REQUIRED and the client rejoins with
  it, so that an abandoned join leaves no orphaned member (KIP-394). Before, it is added at once.
* Without a member id, static: added at once; replaces the previous member with the instance id.
* With a pending member id: added.
* With the id of a member: a rejoin, which triggers a rebalance depending on what changed.
"""

from dataclasses import dataclass

from runnel.coordinator.contract import CoordinatorResult, Moment
from runnel.coordinator.group.context import RequestContext
from runnel.coordinator.group.group import Group, GroupState
from runnel.coordinator.group.member import Member, Protocols
from runnel.coordinator.group.rebalance import extend_session, maybe_complete, rebalance_or_complete
from runnel.coordinator.group.responses import join_group_error, join_group_response
from runnel.coordinator.group.settings import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupSettings
from runnel.coordinator.group.static import replace_static_member
from runnel.messages.join_group import JoinGroupRequest, JoinGroupResponse
from runnel.model.errors import ApiError, ErrorCode

JoinResult = CoordinatorResult[JoinGroupResponse]

_MEMBER_ID_REQUIRED_FROM = 4


@dataclass(slots=True)
class Joining:
    """One JoinGroup request with its inputs and its result."""

    group: Group
    settings: GroupSettings
    request: JoinGroupRequest
    protocols: Protocols
    rebalance_timeout_ms: int
    context: RequestContext
    now: Moment
    result: JoinResult


def join(
    groups: dict[str, Group],
    settings: GroupSettings,
    request: JoinGroupRequest,
    context: RequestContext,
    now: Moment,
) -> JoinResult:
    """Handle a JoinGroup."""
    member_id = request.member_id
    if not request.group_id:
        return _error(ErrorCode.INVALID_GROUP_ID, member_id)
    try:
        check_session_timeout(request, settings)
    except ApiError as error:
        return _error(error.error, member_id)
    group = groups.get(request.group_id)
    if group is None:
        if member_id:
            return _error(ErrorCode.UNKNOWN_MEMBER_ID, member_id)
        group = Group(request.group_id, state_since_ms=now.wall_ms)
    elif not _accepts_member(group, settings, member_id):
        return _reject_group_full(group, member_id, now)
    # Copied, because the request's bytes belong to the receive buffer.
    protocols = tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols)
    if not group.supports(request.protocol_type, protocols):
        return _error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
    groups[group.id] = group
    # Version 0 has one timeout for both; the missing one decodes as -1.
    rebalance_timeout_ms = request.rebalance_timeout_ms
    if rebalance_timeout_ms < 0:
        rebalance_timeout_ms = request.session_timeout_ms
    joining = Joining(
        group, settings, request, protocols, rebalance_timeout_ms, context, now, CoordinatorResult()
    )
    if not member_id:
        _join_without_id(joining)
    elif member_id in group.pending:
        _add(joining, member_id)
    else:
        _rejoin(joining)
    return joining.result


def check_session_timeout(request: JoinGroupRequest, settings: GroupSettings) -> None:
    """Validate the session timeout. Raises ApiError."""
    if not settings.session_timeout_min_ms <= request.session_timeout_ms <= settings.session_timeout_max_ms:
        raise ApiError(
            ErrorCode.INVALID_SESSION_TIMEOUT,
            "the session timeout is outside of group.min/max.session.timeout.ms",
        )


def _error(error: ErrorCode, member_id: str) -> JoinResult:
    return CoordinatorResult(join_group_error(error, member_id))


def _accepts_member(group: Group, settings: GroupSettings, member_id: str) -> bool:
    if group.state is GroupState.EMPTY:
        return True
    if group.state is GroupState.PREPARING:
        # Only rejoined members count, so that the last to rejoin are rejected if the limit was lowered.
        return member_id in group.joining or len(group.joining) < settings.members_max
    return member_id in group.members or len(group.members) < settings.members_max


def _reject_group_full(group: Group, member_id: str, now: Moment) -> JoinResult:
    result = _error(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    if member_id in group.members or member_id in group.pending:
        group.remove(member_id)
        result.cancel_timer(group.session_timer(member_id))
        maybe_complete(group, now, result)
    return result


def _join_without_id(joining: Joining) -> None:
    group, request, context = joining.group, joining.request, joining.context
    instance_id = request.group_instance_id
    new_id = f"{context.client_id if instance_id is None else instance_id}-{context.uuid}"
    if instance_id is not None and instance_id in group.static_members:
        former = group.members[group.static_members[instance_id]]
        replace_static_member(
            group,
            _new_member(joining, new_id, former.client_id, former.client_host),
            former,
            joining.settings,
            context,
            joining.now,
            joining.result,
        )
    elif instance_id is None and context.api_version >= _MEMBER_ID_REQUIRED_FROM:
        group.pending.add(new_id)
        joining.result.set_timer(group.session_timer(new_id), request.session_timeout_ms)
        joining.result.response = join_group_error(ErrorCode.MEMBER_ID_REQUIRED, new_id)
    else:
        _add(joining, new_id)


def _new_member(joining: Joining, member_id: str, client_id: str, client_host: str) -> Member:
    return Member(
        id=member_id,
        instance_id=joining.request.group_instance_id,
        client_id=client_id,
        client_host=client_host,
        session_timeout_ms=joining.request.session_timeout_ms,
        rebalance_timeout_ms=joining.rebalance_timeout_ms,
        protocols=joining.protocols,
    )


def _add(joining: Joining, member_id: str) -> None:
    group, context, now = joining.group, joining.context, joining.now
    member = _new_member(joining, member_id, context.client_id, context.client_host)
    member.is_new = True
    if group.state is GroupState.PREPARING and group.previous_state is GroupState.EMPTY:
        group.new_member_added = True
    group.add(member, joining.request.protocol_type)
    group.joining[member_id] = context.waiter
    extend_session(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS, now, joining.result)
    rebalance_or_complete(group, joining.settings, now, joining.result)


def _rejoin(joining: Joining) -> None:
    group, request = joining.group, joining.request
    try:
        member = group.check_member(request.member_id, request.group_instance_id)
    except ApiError as error:
        joining.result.response = join_group_error(error.error, request.member_id)
        return
    is_unchanged = member.protocols == joining.protocols
    if group.state is GroupState.EMPTY:
        joining.result.response = join_group_error(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
    elif is_unchanged and group.state is GroupState.COMPLETING:
        # The response to its join may have been lost, so it is repeated.
        joining.result.response = join_group_response(group, member.id)
    elif is_unchanged and group.state is GroupState.STABLE and member.id != group.leader:
        joining.result.response = join_group_response(group, member.id)
    else:
        # A leader rejoins to trigger a rebalance, for example after a change of topic metadata.
        _update(joining, member)


def _update(joining: Joining, member: Member) -> None:
    group, request = joining.group, joining.request
    group.set_protocols(member, joining.protocols)
    member.session_timeout_ms = request.session_timeout_ms
    member.rebalance_timeout_ms = joining.rebalance_timeout_ms
    superseded = group.joining.get(member.id)
    if superseded is not None:
        joining.result.respond(superseded, join_group_error(ErrorCode.REBALANCE_IN_PROGRESS, member.id))
    group.joining[member.id] = joining.context.waiter
    rebalance_or_complete(group, joining.settings, joining.now, joining.result)
