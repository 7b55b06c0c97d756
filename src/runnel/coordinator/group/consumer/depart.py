"""Members go: they say so, they are silent for too long, or they do not give up what they must."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from runnel.coordinator.contract import Decision, Timer
from runnel.coordinator.group.consumer.cluster import metadata_hash
from runnel.coordinator.group.consumer.draft import Draft
from runnel.coordinator.group.consumer.group import ConsumerGroup
from runnel.coordinator.group.consumer.member import AWAY_EPOCH, ConsumerMember
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


def stay_away(
    group: ConsumerGroup, member: ConsumerMember, decision: Decision[ConsumerGroupHeartbeatResponse]
) -> None:
    """A static member leaves for a while: nobody gets its partitions before its session ends."""
    away = replace(member, epoch=AWAY_EPOCH, revoking={})
    decision.records.append(current_record(group.id, away))
    decision.cancel_timer(group.revocation_timer(member.id))
    decision.reply = ConsumerGroupHeartbeatResponse(member_id=member.id, member_epoch=AWAY_EPOCH)


def left(request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)


def remove_members(draft: Draft, timers: Collection[Timer], decision: Decision[Any]) -> None:
    """Take the members that these timers are of out of a group, which begins a new epoch without them."""
    for member_id in [timer.part for timer in timers]:
        draft.remove(member_id)
        cancel_timers(draft.group, member_id, decision)
    present = metadata_hash(draft.subscribed_topics())
    draft.write(epoch_record(draft.group.id, draft.group.epoch + 1, present))
    decision.records += draft.records
    decision.then = MembersRemoved(draft.group.id, tuple(timers))


def cancel_timers(group: ConsumerGroup, member_id: str, decision: Decision[Any]) -> None:
    """Wait for a member no longer."""
    group.rejoining.discard(member_id)
    decision.cancel_timer(group.session_timer(member_id))
    decision.cancel_timer(group.revocation_timer(member_id))
    decision.cancel_timer(group.rejoin_timer(member_id))
    decision.cancel_timer(group.resync_timer(member_id))


def members_removed(
    group: ConsumerGroup | None, then: MembersRemoved, error: ErrorCode | None
) -> Decision[None]:
    """If the log would not take the end of members, it is offered again: nobody else may have their work."""
    decision = Decision[None]()
    if error is not None and group is not None:
        for timer in then.timers:
            decision.set_timer(timer, WRITE_RETRY_MS)
    return decision
