"""What every heartbeat and join has in common: follow the metadata, assign if it is time, take one step."""

from typing import Any

from runnel.coordinator.contract import Decision
from runnel.coordinator.group.consumer.cluster import BadPattern, Partition, Partitions
from runnel.coordinator.group.consumer.draft import Draft
from runnel.coordinator.group.consumer.member import ConsumerMember, MemberState
from runnel.coordinator.group.consumer.reconcile import reconcile
from runnel.coordinator.group.settings import GroupSettings
from runnel.model.errors import ApiError, ErrorCode


def say(draft: Draft, former: ConsumerMember, member: ConsumerMember) -> bool:
    """Take in what a member says of itself; whether that begins a new epoch. Raises ApiError."""
    if member != former or member.id not in draft.group.members:
        draft.put_said(member)
    if member.pattern != former.pattern:
        draft.forget_patterns()
    return member.topics != former.topics or (member.pattern or "") != (former.pattern or "")


def follow_metadata(draft: Draft, checked_version: int, *, has_changed: bool) -> None:
    """Bump the group epoch if a subscription or the metadata of its topics changed. Raises ApiError."""
    if not has_changed and checked_version == draft.cluster.version:
        return
    patterns = dict(draft.group.patterns)
    try:
        draft.resolve_patterns()
    except BadPattern as bad:
        raise ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(bad)) from bad
    draft.follow_topics(has_changed=has_changed or draft.group.patterns != patterns)


def assign_when_due(draft: Draft, settings: GroupSettings, *, at_once: bool = False) -> None:
    """Compute the target of a new epoch, unless the last one was computed a moment ago."""
    group, now_ms = draft.group, draft.now.wall_ms
    if group.epoch <= group.assignment_epoch:
        return
    interval_ms = draft.cluster.group_setting(group.id, "consumer.assignment.interval.ms")
    is_due = not 0 <= now_ms - group.assignment_ms < interval_ms
    if at_once or group.assignment_ms == 0 or is_due:
        draft.assign(settings.consumer_assignors[0])


def take_step(
    draft: Draft, member_id: str, owned: Partitions | None, decision: Decision[Any]
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

    def is_free(partition: Partition) -> bool:
        return group.owners.get(partition, member_id) == member_id

    moved = reconcile(member, target, group.assignment_epoch, owned, is_free)
    if moved == member:
        return member
    draft.put_current(moved)
    if moved.is_classic or moved.state is not MemberState.UNREVOKED_PARTITIONS:
        decision.cancel_timer(group.revocation_timer(member_id))
    else:
        decision.set_timer(group.revocation_timer(member_id), moved.rebalance_timeout_ms)
    return moved
