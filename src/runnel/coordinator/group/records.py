"""The records of classic groups and offsets, in Kafka's `__consumer_offsets` formats."""

from collections.abc import Iterable, Mapping

from runnel.coordinator.contract import NewRecord, ReplayContext
from runnel.coordinator.group.group import Group, GroupState
from runnel.coordinator.group.member import Member
from runnel.coordinator.group.offset_store import CommittedOffset, OffsetStore
from runnel.model.ids import NO_ID
from runnel.schemas.coordinator import record_types
from runnel.schemas.group import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)

RECORD_TYPES = record_types((OffsetCommitKey, OffsetCommitValue), (GroupMetadataKey, GroupMetadataValue))

_GROUP_VERSION = 3
_OFFSET_VERSION_WITH_EXPIRY = 1
_OFFSET_VERSION = 3
_OFFSET_VERSION_WITH_TOPIC_ID = 4


def stable_record(
    group: Group, leader: str | None, members: Iterable[Member], assignments: Mapping[str, bytes], now_ms: int
) -> NewRecord:
    """The current generation of a group with these members and assignments."""
    stored = [
        MemberMetadata(
            member_id=member.id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=member.session_timeout_ms,
            subscription=member.metadata(group.protocol),
            assignment=assignments.get(member.id, b""),
        )
        for member in members
    ]
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=leader,
        current_state_timestamp=now_ms,
        members=stored,
    )
    return NewRecord(GroupMetadataKey(group=group.id), value, _GROUP_VERSION)


def empty_record(group: Group, now_ms: int) -> NewRecord:
    """The next generation, without members."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation + 1,
        protocol=None,
        leader=None,
        current_state_timestamp=now_ms,
        members=[],
    )
    return NewRecord(GroupMetadataKey(group=group.id), value, _GROUP_VERSION)


def group_tombstone(group_id: str) -> NewRecord:
    return NewRecord(GroupMetadataKey(group=group_id), None)


def offset_record(group_id: str, topic: str, partition: int, committed: CommittedOffset) -> NewRecord:
    """A committed offset, in the oldest version that can represent it."""
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.committed_ms,
        expire_timestamp=committed.expires_ms,
        topic_id=committed.topic_id,
    )
    if committed.expires_ms != -1:
        version = _OFFSET_VERSION_WITH_EXPIRY
    elif committed.topic_id != NO_ID:
        version = _OFFSET_VERSION_WITH_TOPIC_ID
    else:
        version = _OFFSET_VERSION
    return NewRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), value, version)


def offset_tombstone(group_id: str, topic: str, partition: int) -> NewRecord:
    return NewRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)


def replay_group(groups: dict[str, Group], key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
    """Apply a group record. The soft state of members that remain is retained."""
    group = groups.get(key.group)
    if value is None:
        # The group may continue to exist because of its offsets.
        groups.pop(key.group, None)
        return
    if group is None:
        group = groups[key.group] = Group(key.group)
    group.previous_state = group.state
    group.state = GroupState.STABLE if value.members else GroupState.EMPTY
    group.state_since_ms = value.current_state_timestamp
    group.generation = value.generation
    group.protocol_type = value.protocol_type or None
    group.protocol = value.protocol
    group.leader = value.leader
    known, group.members = group.members, {}
    group.static_members = {}
    group.protocol_counts = {}
    for stored in value.members:
        group.add(_member(known.get(stored.member_id), stored, value.protocol), group.protocol_type)


def replay_offset(
    offsets: OffsetStore, key: OffsetCommitKey, value: OffsetCommitValue | None, context: ReplayContext
) -> None:
    """Apply an offset commit record."""
    if value is None:
        offsets.replay_tombstone(key.group, key.topic, key.partition)
        return
    committed = CommittedOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
    )
    offsets.replay(key.group, key.topic, key.partition, committed, context)


def _member(known: Member | None, stored: MemberMetadata, protocol: str | None) -> Member:
    """A member as stored in the log, with the soft state of the known one."""
    subscription = bytes(stored.subscription)
    if known is not None and known.metadata(protocol) == subscription:
        protocols = known.protocols
    else:
        protocols = ((protocol or "", subscription),)
    rebalance_timeout_ms = stored.rebalance_timeout
    if rebalance_timeout_ms == -1:
        # Version 0 does not store it; the session timeout applied.
        rebalance_timeout_ms = stored.session_timeout
    member = Member(
        id=stored.member_id,
        instance_id=stored.group_instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        session_timeout_ms=stored.session_timeout,
        rebalance_timeout_ms=rebalance_timeout_ms,
        protocols=protocols,
        assignment=bytes(stored.assignment),
    )
    if known is not None:
        member.deadline_ms, member.timer_ms = known.deadline_ms, known.timer_ms
    return member
