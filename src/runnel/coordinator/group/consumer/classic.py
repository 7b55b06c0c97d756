"""Members of a consumer group that use the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

For such a member the member epoch is the generation, and each reconciliation step requires a rejoin. It is
never the group leader: the coordinator computes the assignment.
"""

from dataclasses import replace

from runnel.coordinator.contract import CoordinatorResult
from runnel.coordinator.group.consumer.cluster import Cluster
from runnel.coordinator.group.consumer.draft import Draft
from runnel.coordinator.group.consumer.embedded import assignment_for, owned_in, subscription_in
from runnel.coordinator.group.consumer.group import ConsumerGroup
from runnel.coordinator.group.consumer.heartbeat import check_group_size, replace_static
from runnel.coordinator.group.consumer.member import ClassicMetadata, ConsumerMember, MemberState
from runnel.coordinator.group.consumer.step import (
    maybe_assign,
    maybe_bump_epoch,
    reconcile_member,
    update_member,
)
from runnel.coordinator.group.context import RequestContext
from runnel.coordinator.group.group import CONSUMER_PROTOCOL
from runnel.coordinator.group.responses import join_group_error
from runnel.coordinator.group.settings import GroupSettings
from runnel.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from runnel.messages.join_group import JoinGroupRequest, JoinGroupResponse
from runnel.messages.leave_group import LeaveGroupRequest, MemberIdentity, MemberResponse
from runnel.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from runnel.model.errors import ApiError, ErrorCode

_MEMBER_ID_REQUIRED_FROM = 4


def classic_join(
    group: ConsumerGroup,
    draft: Draft,
    settings: GroupSettings,
    request: JoinGroupRequest,
    context: RequestContext,
    result: CoordinatorResult[JoinGroupResponse],
) -> ConsumerMember | None:
    """Handle a JoinGroup in the draft; returns the member, or None if it only received its member id.

    The caller decides about a downgrade and sets the response. Raises ApiError.
    """
    is_new = not request.member_id
    member_id = request.member_id or f"{request.group_instance_id or context.client_id}-{context.uuid}"
    check_group_size(draft.group, member_id, settings)
    protocols = tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols)
    _check_protocols(draft.group, request.protocol_type, [name for name, _ in protocols])
    if is_new and request.group_instance_id is None and context.api_version >= _MEMBER_ID_REQUIRED_FROM:
        result.response = join_group_error(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        return None
    subscription = subscription_in(protocols[0][1])
    former = _find(draft, request.group_instance_id, member_id, is_new=is_new)
    rebalance_timeout_ms = request.rebalance_timeout_ms
    if rebalance_timeout_ms < 0:
        rebalance_timeout_ms = request.session_timeout_ms
    member = replace(
        former,
        instance_id=request.group_instance_id or former.instance_id,
        rack=subscription.rack_id or former.rack,
        client_id=context.client_id,
        client_host=context.client_host,
        topics=frozenset(subscription.topics),
        rebalance_timeout_ms=rebalance_timeout_ms,
        classic=ClassicMetadata(request.session_timeout_ms, protocols),
    )
    has_changed = update_member(draft, former, member)
    maybe_bump_epoch(draft, group.checked_version, has_changed=has_changed)
    # Without delay: a member with an outdated target would have to rejoin repeatedly.
    maybe_assign(draft, settings, immediately=True)
    return reconcile_member(draft, member_id, owned_in(subscription, draft.cluster), result)


def joined(
    group: ConsumerGroup, member: ConsumerMember, result: CoordinatorResult[JoinGroupResponse]
) -> None:
    """Respond to a join, and start the timeout for the following SyncGroup."""
    assert member.classic is not None, "the member does not use the classic protocol"
    group.rejoining.discard(member.id)
    result.cancel_timer(group.rejoin_timer(member.id))
    result.set_timer(group.session_timer(member.id), member.classic.session_timeout_ms)
    result.set_timer(group.resync_timer(member.id), member.rebalance_timeout_ms)
    result.response = JoinGroupResponse(
        generation_id=member.epoch,
        protocol_type=CONSUMER_PROTOCOL,
        protocol_name=member.classic.protocols[0][0],
        member_id=member.id,
    )


def classic_sync(
    group: ConsumerGroup, cluster: Cluster, request: SyncGroupRequest
) -> CoordinatorResult[SyncGroupResponse]:
    """Handle a SyncGroup: the current assignment of the member. Raises ApiError."""
    member, classic = _classic_member(group, request.member_id, request.group_instance_id)
    _check_generation(member, request.generation_id)
    name, metadata = classic.protocols[0]
    is_same_type = request.protocol_type in (None, CONSUMER_PROTOCOL)
    if not is_same_type or request.protocol_name not in (None, name):
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"member {member.id} joined with protocol {name}"
        )
    result = CoordinatorResult[SyncGroupResponse]()
    if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        result.response = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS.code)
        _await_rejoin(group, member, result)
        return result
    result.cancel_timer(group.resync_timer(member.id))
    result.set_timer(group.session_timer(member.id), classic.session_timeout_ms)
    result.response = SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=assignment_for(metadata, member.assigned, cluster),
    )
    return result


def classic_heartbeat(
    group: ConsumerGroup, request: HeartbeatRequest
) -> CoordinatorResult[HeartbeatResponse]:
    """Handle a Heartbeat: REBALANCE_IN_PROGRESS if the member must rejoin to reconcile. Raises ApiError."""
    member, classic = _classic_member(group, request.member_id, request.group_instance_id)
    _check_generation(member, request.generation_id)
    result = CoordinatorResult[HeartbeatResponse](HeartbeatResponse())
    assert result.response is not None
    result.set_timer(group.session_timer(member.id), classic.session_timeout_ms)
    if (
        member.epoch < group.epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (member.state is MemberState.UNRELEASED_PARTITIONS and not _waits_for_release(group, member))
    ):
        result.response.error_code = ErrorCode.REBALANCE_IN_PROGRESS.code
        _await_rejoin(group, member, result)
    return result


def leaving(group: ConsumerGroup, request: LeaveGroupRequest) -> tuple[list[MemberResponse], list[str]]:
    """The responses to a LeaveGroup, and the ids of the leaving members of either protocol."""
    responses: list[MemberResponse] = []
    removed: list[str] = []
    for identity in request.members:
        response = MemberResponse(identity.member_id, identity.group_instance_id)
        try:
            response.member_id = _leaving_member(group, identity)
            removed.append(response.member_id)
        except ApiError as error:
            response.error_code = error.code
        responses.append(response)
    return responses, list(dict.fromkeys(removed))


def _leaving_member(group: ConsumerGroup, identity: MemberIdentity) -> str:
    member_id = identity.member_id
    if not member_id and identity.group_instance_id is not None:
        # Admin clients specify only the instance id.
        member_id = group.static_members.get(identity.group_instance_id, "")
    return group.check_member(member_id, identity.group_instance_id).id


def _find(draft: Draft, instance_id: str | None, member_id: str, *, is_new: bool) -> ConsumerMember:
    group = draft.group
    if instance_id is None:
        return group.members.get(member_id, ConsumerMember(member_id))
    holder = group.static_member(instance_id)
    if not is_new:
        return group.check_member(member_id, instance_id)
    return ConsumerMember(member_id) if holder is None else replace_static(draft, holder, member_id)


def _check_protocols(group: ConsumerGroup, protocol_type: str, names: list[str]) -> None:
    """Check that the member has a protocol in common with all other classic members. Raises ApiError."""
    common = set(names)
    for member in group.members.values():
        if member.classic is not None:
            common &= {name for name, _ in member.classic.protocols}
    if protocol_type != CONSUMER_PROTOCOL or not common:
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"group {group.id} has members with incompatible protocols"
        )


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[ConsumerMember, ClassicMetadata]:
    member = group.check_member(member_id, instance_id)
    if member.classic is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"member {member.id} does not use the classic protocol")
    return member, member.classic


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if generation != member.epoch:
        raise ApiError(ErrorCode.ILLEGAL_GENERATION, f"member {member.id} is at epoch {member.epoch}")


def _await_rejoin(
    group: ConsumerGroup,
    member: ConsumerMember,
    result: CoordinatorResult[HeartbeatResponse] | CoordinatorResult[SyncGroupResponse],
) -> None:
    """Start the rejoin timeout, unless it is already running."""
    if member.id not in group.rejoining:
        group.rejoining.add(member.id)
        result.set_timer(group.rejoin_timer(member.id), member.rebalance_timeout_ms)


def _waits_for_release(group: ConsumerGroup, member: ConsumerMember) -> bool:
    return any(
        partition not in member.assigned and group.owners.get(partition, member.id) != member.id
        for partition in group.target_of(member.id)
    )
