"""Members of a consumer group that speak the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

To such a member its epoch is the generation, and it is told to join again where the newer protocol would just
tell it the next step. It never leads: the coordinator assigns.
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
    """Decide on a JoinGroup in the group of the draft: the member, or None if it only got its id.

    Whether the group becomes a classic one by this, and what is answered, is for the caller. Raises ApiError.
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
    # At once: a member that is given an old target would be told to join again, and again.
    maybe_assign(draft, settings, at_once=True)
    return reconcile_member(draft, member_id, owned_in(subscription, draft.cluster), result)


def joined(
    group: ConsumerGroup, member: ConsumerMember, result: CoordinatorResult[JoinGroupResponse]
) -> None:
    """Answer a join, and give the member the time that it has until it must ask for its assignment."""
    assert member.classic is not None, "only classic members join this way"
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
    """Decide on a SyncGroup: what the member has. Raises ApiError."""
    member, classic = _classic_member(group, request.member_id, request.group_instance_id)
    _check_generation(member, request.generation_id)
    name, metadata = classic.protocols[0]
    is_same_type = request.protocol_type in (None, CONSUMER_PROTOCOL)
    if not is_same_type or request.protocol_name not in (None, name):
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"member {member.id} joined by {name}")
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
    """Decide on a Heartbeat: whether the member has to join again to take its next step. Raises ApiError."""
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
    """Answers to a LeaveGroup, one for each, and the ids of those who go, whichever protocol they speak."""
    answers: list[MemberResponse] = []
    removed: list[str] = []
    for identity in request.members:
        answer = MemberResponse(identity.member_id, identity.group_instance_id)
        try:
            answer.member_id = _leaving_member(group, identity)
            removed.append(answer.member_id)
        except ApiError as error:
            answer.error_code = error.code
        answers.append(answer)
    return answers, list(dict.fromkeys(removed))


def _leaving_member(group: ConsumerGroup, identity: MemberIdentity) -> str:
    member_id = identity.member_id
    if not member_id and identity.group_instance_id is not None:
        # An administrator names the instance only.
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
    """Has the member a protocol in common with all other classic ones?"""
    common = set(names)
    for member in group.members.values():
        if member.classic is not None:
            common &= {name for name, _ in member.classic.protocols}
    if protocol_type != CONSUMER_PROTOCOL or not common:
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"group {group.id} has members that know other protocols"
        )


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[ConsumerMember, ClassicMetadata]:
    member = group.check_member(member_id, instance_id)
    if member.classic is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member.id} is no member by the classic protocol")
    return member, member.classic


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if generation != member.epoch:
        raise ApiError(ErrorCode.ILLEGAL_GENERATION, f"member {member.id} is at epoch {member.epoch}")


def _await_rejoin(
    group: ConsumerGroup,
    member: ConsumerMember,
    result: CoordinatorResult[HeartbeatResponse] | CoordinatorResult[SyncGroupResponse],
) -> None:
    """The member was told to join again; if it is told so more than once, its time runs from the first."""
    if member.id not in group.rejoining:
        group.rejoining.add(member.id)
        result.set_timer(group.rejoin_timer(member.id), member.rebalance_timeout_ms)


def _waits_for_release(group: ConsumerGroup, member: ConsumerMember) -> bool:
    return any(
        partition not in member.assigned and group.owners.get(partition, member.id) != member.id
        for partition in group.target_of(member.id)
    )
