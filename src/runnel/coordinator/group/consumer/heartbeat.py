"""ConsumerGroupHeartbeat: one request to join, to live, to be assigned, and to leave."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from runnel.coordinator.contract import Decision
from runnel.coordinator.group.caller import Caller
from runnel.coordinator.group.consumer.cluster import Cluster, Partition, Partitions
from runnel.coordinator.group.consumer.draft import Draft
from runnel.coordinator.group.consumer.group import ConsumerGroup
from runnel.coordinator.group.consumer.member import AWAY_EPOCH, JOINING_EPOCH, ConsumerMember, MemberState
from runnel.coordinator.group.consumer.records import by_topic, member_tombstones, target_record
from runnel.coordinator.group.consumer.step import assign_when_due, follow_metadata, say, take_step
from runnel.coordinator.group.settings import GroupSettings
from runnel.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from runnel.model.errors import ApiError, ErrorCode

_SOON_MS = 500
"""Until the next report of a member that waits for a target, or for what others are giving up. Kafka lets it
wait a whole interval, in which nobody reads those partitions."""

HeartbeatDecision = Decision[ConsumerGroupHeartbeatResponse]


@dataclass(slots=True)
class Beat:
    """One heartbeat of somebody who is a member, or is to become one."""

    request: ConsumerGroupHeartbeatRequest
    caller: Caller
    settings: GroupSettings
    draft: Draft
    decision: HeartbeatDecision
    checked_version: int = -1
    """The metadata that the group was last compared with."""


def beat(beat: Beat) -> None:
    """Decide on a heartbeat in the group of the draft. Raises ApiError."""
    request, draft, decision = beat.request, beat.draft, beat.decision
    group = draft.group
    member_id = request.member_id or beat.caller.unique
    is_joining = request.member_epoch == JOINING_EPOCH
    check_room(group, member_id, beat.settings)
    owned = owned_partitions(request)
    former = _find(draft, request, member_id, owned)
    member = _said(former, request, beat.caller)
    has_changed = say(draft, former, member)
    follow_metadata(draft, beat.checked_version, has_changed=has_changed)
    assign_when_due(draft, beat.settings)
    moved = take_step(draft, member_id, owned, decision)
    touch(draft.group, member_id, draft.cluster, decision)
    is_whole = (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and owned is not None
    )
    has_moved = moved.assigned.keys() != former.assigned.keys()
    decision.records += draft.records
    decision.reply = answer(
        draft.group, moved, draft.cluster, with_assignment=is_joining or is_whole or has_moved
    )


def is_quiet(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, caller: Caller, version: int
) -> bool:
    """Is this a heartbeat like most: of a settled member that has nothing new to say, in a settled group?"""
    member = group.members.get(request.member_id)
    return (
        member is not None
        and request.member_epoch == member.epoch
        and member.is_settled_in(group.epoch)
        and group.assignment_epoch == group.epoch
        and group.checked_version == version
        and request.instance_id in (None, member.instance_id)
        and request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.rack_id is None
        and request.server_assignor is None
        and request.rebalance_timeout_ms == -1
        and not member.is_classic
        and member.client_id == caller.client_id
        and member.client_host == caller.client_host
    )


def check_room(group: ConsumerGroup, member_id: str, settings: GroupSettings) -> None:
    """Is there room for one more, if this is one more? Raises ApiError."""
    if len(group.members) >= settings.consumer_members_max and member_id not in group.members:
        raise ApiError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"group {group.id} is full: it has {settings.consumer_members_max} members",
        )


def touch(group: ConsumerGroup, member_id: str, cluster: Cluster, decision: HeartbeatDecision) -> None:
    """A sign of life: the member has a whole session again."""
    timeout_ms = cluster.group_setting(group.id, "consumer.session.timeout.ms")
    decision.set_timer(group.session_timer(member_id), timeout_ms)


def answer(
    group: ConsumerGroup, member: ConsumerMember, cluster: Cluster, *, with_assignment: bool
) -> ConsumerGroupHeartbeatResponse:
    """Where the member stands, and when to report again: soon, if its next step is in sight."""
    interval_ms = cluster.group_setting(group.id, "consumer.heartbeat.interval.ms")
    is_waiting = member.state is MemberState.UNRELEASED_PARTITIONS or group.epoch > group.assignment_epoch
    response = ConsumerGroupHeartbeatResponse(
        member_id=member.id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=min(interval_ms, _SOON_MS) if is_waiting else interval_ms,
    )
    if with_assignment:
        response.assignment = Assignment(_topics(member.assigned))
    return response


def owned_partitions(request: ConsumerGroupHeartbeatRequest) -> Partitions | None:
    """What the member says it has; None if it does not say."""
    if request.topic_partitions is None:
        return None
    return frozenset(
        Partition(bytes(topic.topic_id), index)
        for topic in request.topic_partitions
        for index in topic.partitions
    )


def replace_static(draft: Draft, former: ConsumerMember, member_id: str) -> ConsumerMember:
    """A static member comes back under a new id and takes over what its former self had."""
    group = draft.group
    target = group.target_of(former.id)
    member = replace(former, id=member_id, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH)
    # Not `remove`: the pattern of the former is the pattern of the new one.
    draft.write(*member_tombstones(group.id, former.id))
    draft.put_said(member)
    draft.write(target_record(group.id, member_id, target))
    draft.put_current(member)
    return member


def _find(
    draft: Draft, request: ConsumerGroupHeartbeatRequest, member_id: str, owned: Partitions | None
) -> ConsumerMember:
    """Whom the heartbeat is of: a member, or one that is to be."""
    group, instance_id = draft.group, request.instance_id
    is_joining = request.member_epoch == JOINING_EPOCH
    holder = None if instance_id is None else group.static_member(instance_id)
    if is_joining and holder is not None and holder.id != member_id:
        if not holder.is_classic and holder.epoch != AWAY_EPOCH:
            raise ApiError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"instance id {instance_id} belongs to {holder.id}, which has not left it to {member_id}",
            )
        return replace_static(draft, holder, member_id)
    if is_joining:
        return group.members.get(member_id, ConsumerMember(member_id))
    member = group.check_member(member_id, instance_id)
    _check_epoch(member, request.member_epoch, owned)
    return member


def _check_epoch(member: ConsumerMember, epoch: int, owned: Partitions | None) -> None:
    """A member may be one step behind, if an answer was lost, and has nothing that is no longer its own."""
    if epoch == member.epoch:
        return
    is_repeated = epoch == member.previous_epoch and owned is not None and member.has_all(owned)
    if epoch < member.epoch and is_repeated:
        return
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"{member.id} is at epoch {member.epoch}, not at {epoch}: it has to let go of everything and join",
    )


def _said(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> ConsumerMember:
    """The member with what the request says of it; what it leaves out stays."""
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
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=None,
    )


def _topics(partitions: Iterable[Partition]) -> list[TopicPartitions]:
    return [TopicPartitions(topic_id, numbers) for topic_id, numbers in by_topic(partitions).items()]
