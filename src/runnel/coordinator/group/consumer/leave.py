"""Members go: they say so, they are silent for too long, or they do not give up what they must."""

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
    """Written: members are gone from their group."""

    group_id: str
    timers: tuple[Timer, ...]
    """By which it is tried again if it could not be written."""


def leave_static(
    group: ConsumerGroup, member: ConsumerMember, result: CoordinatorResult[ConsumerGroupHeartbeatResponse]
) -> None:
    """A static member leaves for a while: nobody gets its partitions before its session ends."""
    away = replace(member, epoch=LEAVE_STATIC_EPOCH, revoking={})
    result.records.append(current_record(group.id, away))
    result.cancel_timer(group.revocation_timer(member.id))
    result.response = ConsumerGroupHeartbeatResponse(member_id=member.id, member_epoch=LEAVE_STATIC_EPOCH)


def leave_response(request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)


def remove_members(draft: Draft, timers: Collection[Timer], result: CoordinatorResult[Any]) -> None:
    """Take the members that these timers are of out of a group, which begins a new epoch without them."""
    for member_id in [timer.part for timer in timers]:
        draft.remove(member_id)
        cancel_timers(draft.group, member_id, result)
    present = metadata_hash(draft.subscribed_topics())
    draft.write(epoch_record(draft.group.id, draft.group.epoch + 1, present))
    result.records += draft.records
    result.continuation = MembersRemoved(draft.group.id, tuple(timers))


def cancel_timers(group: ConsumerGroup, member_id: str, result: CoordinatorResult[Any]) -> None:
    """Wait for a member no longer."""
    group.rejoining.discard(member_id)
    result.cancel_timer(group.session_timer(member_id))
    result.cancel_timer(group.revocation_timer(member_id))
    result.cancel_timer(group.rejoin_timer(member_id))
    result.cancel_timer(group.resync_timer(member_id))


def members_removed(
    group: ConsumerGroup | None, continuation: MembersRemoved, error: ErrorCode | None
) -> CoordinatorResult[None]:
    """If the log would not take the end of members, it is offered again: nobody else may have their work."""
    result = CoordinatorResult[None]()
    if error is not None and group is not None:
        for timer in continuation.timers:
            result.set_timer(timer, WRITE_RETRY_MS)
    return result
