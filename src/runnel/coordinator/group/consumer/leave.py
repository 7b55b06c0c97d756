"""Removal of members: on request, on session expiration, or on a revocation timeout."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from runnel.coordinator.contract import CoordinatorResult, Timer
from runnel.coordinator.group.consumer.cluster import metadata_hash
from runnel.coordinator.group.consumer.draft import Draft
from runnel.coordinator.group.consumer.group import ConsumerGroup
from runnel.coordinator.group.consumer.member import LEAVE_STATIC_EPOCH, ConsumerMember
from runnel.coordinator.group.consumer.records import current_record, epoch_record
from runnel.coordinator.group.settings import WRITE_RETRY_MS
from runnel.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from runnel.model.errors import ErrorCode


@dataclass(slots=True)
class MembersRemoved:
    """Continuation: the removal of members was written."""

    group_id: str
    timers: tuple[Timer, ...]
    """Set again to retry if the append failed."""


def leave_static(
    group: ConsumerGroup, member: ConsumerMember, result: CoordinatorResult[ConsumerGroupHeartbeatResponse]
) -> None:
    """A static member leaves temporarily: its partitions stay assigned until its session expires."""
    left = replace(member, epoch=LEAVE_STATIC_EPOCH, revoking={})
    result.records.append(current_record(group.id, left))
    result.cancel_timer(group.revocation_timer(member.id))
    result.response = ConsumerGroupHeartbeatResponse(member_id=member.id, member_epoch=LEAVE_STATIC_EPOCH)


def leave_response(request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)


def remove_members(draft: Draft, timers: Collection[Timer], result: CoordinatorResult[Any]) -> None:
    """Remove the members of these timers, and bump the group epoch."""
    for member_id in [timer.part for timer in timers]:
        draft.remove(member_id)
        cancel_timers(draft.group, member_id, result)
    current_hash = metadata_hash(draft.subscribed_topics())
    draft.write(epoch_record(draft.group.id, draft.group.epoch + 1, current_hash))
    result.records += draft.records
    result.continuation = MembersRemoved(draft.group.id, tuple(timers))


def cancel_timers(group: ConsumerGroup, member_id: str, result: CoordinatorResult[Any]) -> None:
    """Cancel all timers of a member."""
    group.rejoining.discard(member_id)
    result.cancel_timer(group.session_timer(member_id))
    result.cancel_timer(group.revocation_timer(member_id))
    result.cancel_timer(group.rejoin_timer(member_id))
    result.cancel_timer(group.resync_timer(member_id))


def members_removed(
    group: ConsumerGroup | None, continuation: MembersRemoved, error: ErrorCode | None
) -> CoordinatorResult[None]:
    """Retry if the append failed: until then the partitions of the members are not released."""
    result = CoordinatorResult[None]()
    if error is not None and group is not None:
        for timer in continuation.timers:
            result.set_timer(timer, WRITE_RETRY_MS)
    return result
