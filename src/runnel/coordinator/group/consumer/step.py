"""The steps of every heartbeat and join: update the member, bump the epoch, assign, reconcile."""

from typing import Any

from runnel.coordinator.contract import CoordinatorResult
from runnel.coordinator.group.consumer.cluster import InvalidPattern, Partitions, TopicIdPartition
from runnel.coordinator.group.consumer.draft import Draft
from runnel.coordinator.group.consumer.member import ConsumerMember, MemberState
from runnel.coordinator.group.consumer.reconcile import reconcile
from runnel.coordinator.group.settings import GroupSettings
from runnel.model.errors import ApiError, ErrorCode


def update_member(draft: Draft, former: ConsumerMember, member: ConsumerMember) -> bool:
    """Write the updated member; returns whether its subscription changed. Raises ApiError."""
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


def maybe_assign(draft: Draft, settings: GroupSettings, *, immediately: bool = False) -> None:
    """Compute the target assignment of a new epoch, at most once per assignment interval."""
    group, now_ms = draft.group, draft.now.wall_ms
    if group.epoch <= group.assignment_epoch:
        return
    interval_ms = draft.cluster.group_setting(group.id, "consumer.assignment.interval.ms")
    is_due = not 0 <= now_ms - group.assignment_ms < interval_ms
    if immediately or group.assignment_ms == 0 or is_due:
        draft.assign(settings.consumer_assignors[0])


def reconcile_member(
    draft: Draft, member_id: str, owned: Partitions | None, result: CoordinatorResult[Any]
) -> ConsumerMember:
    """Reconcile a member with its target assignment. Raises ApiError."""
    group = draft.group
    member = group.members[member_id]
    target = group.target_of(member_id)
    if group.epoch > group.assignment_epoch:
        # The target is outdated: exclude topics that the member is no longer subscribed to.
        names = group.topics_of(member)
        target = frozenset(
            partition for partition in target if draft.cluster.name_of(partition.topic_id) in names
        )

    def is_free(partition: TopicIdPartition) -> bool:
        return group.owners.get(partition, member_id) == member_id

    reconciled = reconcile(member, target, group.assignment_epoch, owned, is_free)
    if reconciled == member:
        return member
    draft.write_current_assignment(reconciled)
    if reconciled.is_classic or reconciled.state is not MemberState.UNREVOKED_PARTITIONS:
        result.cancel_timer(group.revocation_timer(member_id))
    else:
        result.set_timer(group.revocation_timer(member_id), reconciled.rebalance_timeout_ms)
    return reconciled
