"""What every heartbeat and join has in common: follow the metadata, assign if it is time, take one step."""

from typing import Any

from runnel.coordinator.contract import CoordinatorResult
from runnel.coordinator.group.consumer.cluster import InvalidPattern, Partitions, TopicIdPartition
from runnel.coordinator.group.consumer.draft import Draft
from runnel.coordinator.group.consumer.member import ConsumerMember, MemberState
from runnel.coordinator.group.consumer.reconcile import reconcile
from runnel.coordinator.group.settings import GroupSettings
from runnel.model.errors import ApiError, ErrorCode


def update_member(draft: Draft, former: ConsumerMember, member: ConsumerMember) -> bool:
    """Take in what a member says of itself; whether that begins a new epoch. Raises ApiError."""
    if member != former or member.id not in draft.group.members:
        draft.write_member(member)
    if member.pattern != former.pattern:
        draft.remove_unused_patterns()
    return member.topics != former.topics or (member.pattern or "") != (former.pattern or "")


def maybe_bump_epoch(draft: Draft, checked_version: int, *, has_changed: bool) -> None:
    """Bump the group epoch if a subscription or the metadata of its topics changed. Raises ApiError."""
    if not has_changed and checked_version == draft.cluster.version:
        return
    patterns = dict(draft.group.patterns)
    try:
        draft.resolve_patterns()
    except InvalidPattern as bad:
        raise ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(bad)) from bad
    draft.bump_epoch_if_changed(has_changed=has_changed or draft.group.patterns != patterns)


def maybe_assign(draft: Draft, settings: GroupSettings, *, at_once: bool = False) -> None:
    """Compute the target of a new epoch, unless the last one was computed a moment ago."""
    group, now_ms = draft.group, draft.now.wall_ms
    if group.epoch <= group.assignment_epoch:
        return
    interval_ms = draft.cluster.group_setting(group.id, "consumer.assignment.interval.ms")
    is_due = not 0 <= now_ms - group.assignment_ms < interval_ms
    if at_once or group.assignment_ms == 0 or is_due:
        draft.assign(settings.consumer_assignors[0])


def reconcile_member(
    draft: Draft, member_id: str, owned: Partitions | None, result: CoordinatorResult[Any]
) -> ConsumerMember:
    """Bring a member one step closer to its target. Raises ApiError."""
    group = draft.group
    member = group.members[member_id]
    target = group.target_of(member_id)
    if group.epoch > group.assignment_epoch:
        # The target is of an earlier epoch: what the member no longer wants, it must not be given.
        names = group.topics_of(member)
        target = frozenset(
            partition for partition in target if draft.cluster.name_of(partition.topic_id) in names
        )

    def is_free(partition: TopicIdPartition) -> bool:
        return group.owners.get(partition, member_id) == member_id

    moved = reconcile(member, target, group.assignment_epoch, owned, is_free)
    if moved == member:
        return member
    draft.write_current_assignment(moved)
    if moved.is_classic or moved.state is not MemberState.UNREVOKED_PARTITIONS:
        result.cancel_timer(group.revocation_timer(member_id))
    else:
        result.set_timer(group.revocation_timer(member_id), moved.rebalance_timeout_ms)
    return moved
