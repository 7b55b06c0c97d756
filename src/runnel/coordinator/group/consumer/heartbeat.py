"""ConsumerGroupHeartbeat: join, heartbeat, reconcile and leave."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from runnel.coordinator.contract import CoordinatorResult
from runnel.coordinator.group.consumer.cluster import Cluster, Partitions, TopicIdPartition
from runnel.coordinator.group.consumer.draft import Draft
from runnel.coordinator.group.consumer.group import ConsumerGroup
from runnel.coordinator.group.consumer.member import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerMember,
    MemberState,
)
from runnel.coordinator.group.consumer.records import by_topic, member_tombstones, target_record
from runnel.coordinator.group.consumer.step import (
    maybe_assign,
    maybe_bump_epoch,
    reconcile_member,
    update_member,
)
from runnel.coordinator.group.context import RequestContext
from runnel.coordinator.group.settings import GroupSettings
from runnel.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from runnel.model.errors import ApiError, ErrorCode

_WAITING_INTERVAL_MS = 500
"""The heartbeat interval of a member that waits for a target assignment or for partitions of others. In Kafka
it is the regular interval, during which no member consumes these partitions."""

HeartbeatResult = CoordinatorResult[ConsumerGroupHeartbeatResponse]


@dataclass(slots=True)
class Heartbeat:
    """One heartbeat of a member or of a joining client, with its inputs and its result."""

    request: ConsumerGroupHeartbeatRequest
    context: RequestContext
    settings: GroupSettings
    draft: Draft
    result: HeartbeatResult
    checked_version: int = -1
    """The metadata version that the group was last checked against."""


def handle_heartbeat(heartbeat: Heartbeat) -> None:
    """Handle a heartbeat in the draft. Raises ApiError."""
    request, draft, result = heartbeat.request, heartbeat.draft, heartbeat.result
    group = draft.group
    member_id = request.member_id or heartbeat.context.uuid
    is_joining = request.member_epoch == JOIN_EPOCH
    check_group_size(group, member_id, heartbeat.settings)
    owned = owned_partitions(request)
    former = _find(draft, request, member_id, owned)
    member = _updated_member(former, request, heartbeat.context)
    has_changed = update_member(draft, former, member)
    maybe_bump_epoch(draft, heartbeat.checked_version, has_changed=has_changed)
    maybe_assign(draft, heartbeat.settings)
    reconciled = reconcile_member(draft, member_id, owned, result)
    extend_session(draft.group, member_id, draft.cluster, result)
    is_full_request = (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and owned is not None
    )
    has_changed_assignment = reconciled.assigned.keys() != former.assigned.keys()
    result.records += draft.records
    result.response = heartbeat_response(
        draft.group,
        reconciled,
        draft.cluster,
        with_assignment=is_joining or is_full_request or has_changed_assignment,
    )


def is_keepalive(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, context: RequestContext, version: int
) -> bool:
    """Whether this is a heartbeat of a stable member in a stable group without changes: the common case."""
    member = group.members.get(request.member_id)
    return (
        member is not None
        and request.member_epoch == member.epoch
        and member.is_stable_at(group.epoch)
        and group.assignment_epoch == group.epoch
        and group.checked_version == version
        and request.instance_id in (None, member.instance_id)
        and request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.rack_id is None
        and request.server_assignor is None
        and request.rebalance_timeout_ms == -1
        and not member.is_classic
        and member.client_id == context.client_id
        and member.client_host == context.client_host
    )


def check_group_size(group: ConsumerGroup, member_id: str, settings: GroupSettings) -> None:
    """Check the maximum group size. Raises ApiError."""
    if len(group.members) >= settings.consumer_members_max and member_id not in group.members:
        raise ApiError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"group {group.id} has reached its maximum size of {settings.consumer_members_max} members",
        )


def extend_session(group: ConsumerGroup, member_id: str, cluster: Cluster, result: HeartbeatResult) -> None:
    """Restart the session timeout of a member."""
    timeout_ms = cluster.group_setting(group.id, "consumer.session.timeout.ms")
    result.set_timer(group.session_timer(member_id), timeout_ms)


def heartbeat_response(
    group: ConsumerGroup, member: ConsumerMember, cluster: Cluster, *, with_assignment: bool
) -> ConsumerGroupHeartbeatResponse:
    """The response: epoch, assignment and heartbeat interval, which is short while the member waits."""
    interval_ms = cluster.group_setting(group.id, "consumer.heartbeat.interval.ms")
    is_waiting = member.state is MemberState.UNRELEASED_PARTITIONS or group.epoch > group.assignment_epoch
    response = ConsumerGroupHeartbeatResponse(
        member_id=member.id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=min(interval_ms, _WAITING_INTERVAL_MS) if is_waiting else interval_ms,
    )
    if with_assignment:
        response.assignment = Assignment(_topics(member.assigned))
    return response


def owned_partitions(request: ConsumerGroupHeartbeatRequest) -> Partitions | None:
    """The partitions that the member reports as owned; None if omitted."""
    if request.topic_partitions is None:
        return None
    return frozenset(
        TopicIdPartition(bytes(topic.topic_id), index)
        for topic in request.topic_partitions
        for index in topic.partitions
    )


def replace_static(draft: Draft, former: ConsumerMember, member_id: str) -> ConsumerMember:
    """Replace a static member that rejoined with a new member id; it takes over the assignment."""
    group = draft.group
    target = group.target_of(former.id)
    member = replace(former, id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    # Not `remove`, which would remove the pattern that the new member uses as well.
    draft.write(*member_tombstones(group.id, former.id))
    draft.write_member(member)
    draft.write(target_record(group.id, member_id, target))
    draft.write_current_assignment(member)
    return member


def _find(
    draft: Draft, request: ConsumerGroupHeartbeatRequest, member_id: str, owned: Partitions | None
) -> ConsumerMember:
    """The existing or new member of the heartbeat."""
    group, instance_id = draft.group, request.instance_id
    is_joining = request.member_epoch == JOIN_EPOCH
    holder = None if instance_id is None else group.static_member(instance_id)
    if is_joining and holder is not None and holder.id != member_id:
        if not holder.is_classic and holder.epoch != LEAVE_STATIC_EPOCH:
            raise ApiError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"instance id {instance_id} is still used by member {holder.id}",
            )
        return replace_static(draft, holder, member_id)
    if is_joining:
        return group.members.get(member_id, ConsumerMember(member_id))
    member = group.check_member(member_id, instance_id)
    _check_epoch(member, request.member_epoch, owned)
    return member


def _check_epoch(member: ConsumerMember, epoch: int, owned: Partitions | None) -> None:
    """Accept the previous epoch if a response was lost and the member owns only assigned partitions."""
    if epoch == member.epoch:
        return
    is_repeated = epoch == member.previous_epoch and owned is not None and member.owns_all(owned)
    if epoch < member.epoch and is_repeated:
        return
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"member {member.id} is at epoch {member.epoch}, not {epoch}; it must revoke all and rejoin",
    )


def _updated_member(
    member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerMember:
    """The member updated by the request; omitted fields are unchanged."""
    names = request.subscribed_topic_names
    pattern = request.subscribed_topic_regex
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack=member.rack if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms
        if request.rebalance_timeout_ms == -1
        else request.rebalance_timeout_ms,
        assignor=member.assignor if request.server_assignor is None else request.server_assignor,
        topics=member.topics if names is None else frozenset(names),
        pattern=member.pattern if pattern is None else pattern,
        client_id=context.client_id,
        client_host=context.client_host,
        classic=None,
    )


def _topics(partitions: Iterable[TopicIdPartition]) -> list[TopicPartitions]:
    return [TopicPartitions(topic_id, numbers) for topic_id, numbers in by_topic(partitions).items()]
