"""Online migration of groups between the classic and the consumer protocol.

Upgrade: the first member of the consumer protocol joins a classic group. The assignments are converted, the
group epoch continues from the generation, and the existing members remain as classic members of a consumer
group.

Downgrade: the last member of the consumer protocol leaves a consumer group. The remaining members form a
classic group, whose generation continues from the group epoch, and rejoin to elect a leader.
"""

from collections.abc import Set
from dataclasses import dataclass
from typing import Any

from runnel.coordinator.contract import CoordinatorResult, Moment, Timer
from runnel.coordinator.group.consumer.cluster import Cluster, Partitions, TopicIdPartition
from runnel.coordinator.group.consumer.draft import Draft
from runnel.coordinator.group.consumer.embedded import (
    assignment_for,
    owned_in,
    partitions_in,
    subscription_in,
)
from runnel.coordinator.group.consumer.group import ConsumerGroup
from runnel.coordinator.group.consumer.leave import cancel_timers
from runnel.coordinator.group.consumer.member import ClassicMetadata, ConsumerMember
from runnel.coordinator.group.consumer.records import (
    consumer_group_tombstones,
    epoch_record,
    target_epoch_record,
    target_record,
)
from runnel.coordinator.group.group import CONSUMER_PROTOCOL, Group
from runnel.coordinator.group.member import Member, Protocols, select_protocol
from runnel.coordinator.group.rebalance import extend_session, prepare
from runnel.coordinator.group.records import group_tombstone, stable_record
from runnel.coordinator.group.responses import join_group_error, sync_group_error
from runnel.coordinator.group.settings import WRITE_RETRY_MS, GroupSettings
from runnel.model.errors import ApiError, ErrorCode


@dataclass(slots=True)
class Upgraded:
    """Continuation: a classic group was written as a consumer group."""

    group_id: str
    former: Group


@dataclass(slots=True)
class Downgraded:
    """Continuation: a consumer group was written as a classic group."""

    group_id: str
    former: ConsumerGroup
    protocols: dict[str, Protocols]
    retry: list[Timer]
    """Timers of the leaving members. If empty, a member was replaced and no rebalance is needed."""


def upgrade(classic: Group, draft: Draft, settings: GroupSettings, result: CoordinatorResult[Any]) -> None:
    """Convert a classic group to a consumer group in the draft. Raises ApiError."""
    protocol = classic.protocol or select_protocol(member.protocols for member in classic.members.values())
    not_a_consumer_group = ApiError(
        ErrorCode.GROUP_ID_NOT_FOUND, f"Group {classic.id} is not a consumer group."
    )
    is_allowed = settings.can_upgrade and len(classic.members) <= settings.consumer_members_max
    if not is_allowed or classic.protocol_type != CONSUMER_PROTOCOL or protocol is None:
        raise not_a_consumer_group
    draft.records.append(group_tombstone(classic.id))
    try:
        owned_by_member = _owned_partitions(classic, protocol, draft.cluster)
    except ApiError as error:
        # The protocol type is consumer, but the metadata is not of the consumer protocol.
        raise not_a_consumer_group from error
    members = [
        _as_consumer(member, classic.generation, protocol, owned_by_member[member.id])
        for member in classic.members.values()
    ]
    for converted in members:
        draft.write_member(converted)
    draft.write(epoch_record(classic.id, classic.generation, 0))
    for converted in members:
        draft.write(target_record(classic.id, converted.id, frozenset(converted.assigned)))
    draft.write(target_epoch_record(classic.id, classic.generation, 0))
    for converted in members:
        draft.write_current_assignment(converted)
    result.continuation = Upgraded(classic.id, classic)


def upgraded(continuation: Upgraded, error: ErrorCode | None) -> CoordinatorResult[None]:
    """Fail the parked requests of the classic group, so that its members rejoin."""
    result = CoordinatorResult[None]()
    if error is not None:
        return result
    former = continuation.former
    for member_id, waiter in former.joining.items():
        result.respond(waiter, join_group_error(ErrorCode.REBALANCE_IN_PROGRESS, member_id))
    for waiter in former.syncing.values():
        result.respond(waiter, sync_group_error(ErrorCode.REBALANCE_IN_PROGRESS))
    result.cancel_timer(former.join_timer)
    result.cancel_timer(former.sync_timer)
    for member_id in former.pending:
        result.cancel_timer(former.session_timer(member_id))
    for member in former.members.values():
        result.set_timer(former.session_timer(member.id), member.session_timeout_ms)
    return result


def can_downgrade(
    group: ConsumerGroup, leaving: Set[str], settings: GroupSettings, *, is_replaced: bool
) -> bool:
    """Whether these are the last members of the consumer protocol and a downgrade is allowed."""
    remaining = [member for member in group.members.values() if member.id not in leaving]
    size = len(remaining) + is_replaced
    return (
        settings.can_downgrade
        and 0 < size <= settings.members_max
        and all(member.is_classic for member in remaining)
        and not all(member.is_classic for member in group.members.values())
    )


def downgrade(
    group: ConsumerGroup, draft: Draft, retry: list[Timer], now: Moment, result: CoordinatorResult[Any]
) -> None:
    """Convert the draft, all of whose members are classic, to a classic group.

    `group` is the current state; in the draft a member that left may have been replaced.
    """
    protocols = {member.id: _classic_metadata(member).protocols for member in draft.group.members.values()}
    protocol = select_protocol(protocols.values())
    assert protocol is not None, f"group {group.id} has members without a common protocol"
    classic = Group(group.id, generation=draft.group.epoch, protocol=protocol)
    assignments: dict[str, bytes] = {}
    for member in draft.group.members.values():
        classic.add(_as_classic(member), CONSUMER_PROTOCOL)
        metadata = classic.members[member.id].metadata(protocol)
        assignments[member.id] = assignment_for(metadata, member.assigned, draft.cluster)
    result.records += consumer_group_tombstones(group)
    result.records.append(
        stable_record(classic, classic.leader, classic.members.values(), assignments, now.wall_ms)
    )
    result.continuation = Downgraded(group.id, group, protocols, retry)


def downgraded(
    classic: Group | None,
    continuation: Downgraded,
    error: ErrorCode | None,
    settings: GroupSettings,
    now: Moment,
) -> CoordinatorResult[None]:
    """Start the sessions of the classic group's members, and a rebalance."""
    result = CoordinatorResult[None]()
    if error is not None or classic is None:
        for timer in continuation.retry:
            result.set_timer(timer, WRITE_RETRY_MS)
        return result
    for member_id in continuation.former.members:
        cancel_timers(continuation.former, member_id, result)
    for member in classic.members.values():
        classic.set_protocols(member, continuation.protocols[member.id])
        extend_session(classic, member, member.session_timeout_ms, now, result)
    if continuation.retry:
        prepare(classic, settings, now, result)
    return result


def _owned_partitions(classic: Group, protocol: str, cluster: Cluster) -> dict[str, Partitions]:
    """The partitions of each member: those assigned, and those that it owned when it joined and no other has.

    It may have revoked the latter already; until it reports so, it must be asked to.
    """
    taken = set[TopicIdPartition]()
    owned_by_member: dict[str, Partitions] = {}
    for member in classic.members.values():
        # A classic leader may have assigned a partition twice, which a consumer group does not allow.
        owned_by_member[member.id] = partitions_in(member.assignment, cluster) - taken
        taken |= owned_by_member[member.id]
    for member in classic.members.values():
        owned = owned_in(subscription_in(member.metadata(protocol)), cluster) - taken
        owned_by_member[member.id] |= owned
        taken |= owned
    return owned_by_member


def _as_consumer(member: Member, generation: int, protocol: str, assigned: Partitions) -> ConsumerMember:
    subscription = subscription_in(member.metadata(protocol))
    return ConsumerMember(
        id=member.id,
        instance_id=member.instance_id,
        rack=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=frozenset(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMetadata(member.session_timeout_ms, member.protocols),
        epoch=generation,
        previous_epoch=generation,
        assigned=dict.fromkeys(assigned, generation),
    )


def _as_classic(member: ConsumerMember) -> Member:
    classic = _classic_metadata(member)
    return Member(
        id=member.id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=classic.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=classic.protocols,
    )


def _classic_metadata(member: ConsumerMember) -> ClassicMetadata:
    assert member.classic is not None, f"{member.id} does not use the classic protocol"
    return member.classic
