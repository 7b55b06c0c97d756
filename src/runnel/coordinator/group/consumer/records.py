"""The records of consumer groups, in Kafka's `__consumer_offsets` formats."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from runnel.coordinator.contract import NewRecord
from runnel.coordinator.group.consumer.cluster import Partitions, TopicIdPartition
from runnel.coordinator.group.consumer.group import NEVER_ASSIGNED, ConsumerGroup, ResolvedPattern
from runnel.coordinator.group.consumer.member import LEAVE_EPOCH, ClassicMetadata, ConsumerMember, MemberState
from runnel.schemas.coordinator import record_types
from runnel.schemas.group import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartition,
    TopicPartitions,
)
from runnel.wire import Data

CONSUMER_RECORD_TYPES = record_types(
    (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
)
CONSUMER_KEYS = tuple(key for key, _ in CONSUMER_RECORD_TYPES.values())


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> NewRecord:
    return NewRecord(
        ConsumerGroupMetadataKey(group_id), ConsumerGroupMetadataValue(epoch, metadata_hash=metadata_hash)
    )


def member_record(group_id: str, member: ConsumerMember) -> NewRecord:
    """The metadata and subscription of a member."""
    classic = member.classic
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.pattern,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=None
        if classic is None
        else ClassicMemberMetadata(
            classic.session_timeout_ms,
            [ClassicProtocol(name, metadata) for name, metadata in classic.protocols],
        ),
    )
    return NewRecord(ConsumerGroupMemberMetadataKey(group_id, member.id), value)


def current_record(group_id: str, member: ConsumerMember) -> NewRecord:
    """The current assignment of a member."""
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=_with_epochs(member.assigned),
        partitions_pending_revocation=_with_epochs(member.revoking),
    )
    return NewRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id, member.id), value)


def target_record(group_id: str, member_id: str, partitions: Partitions) -> NewRecord:
    """The target assignment of a member."""
    topics = [TopicPartition(topic_id, numbers) for topic_id, numbers in by_topic(partitions).items()]
    return NewRecord(
        ConsumerGroupTargetAssignmentMemberKey(group_id, member_id),
        ConsumerGroupTargetAssignmentMemberValue(topics),
    )


def target_epoch_record(group_id: str, epoch: int, now_ms: int) -> NewRecord:
    return NewRecord(
        ConsumerGroupTargetAssignmentMetadataKey(group_id),
        ConsumerGroupTargetAssignmentMetadataValue(epoch, assignment_timestamp=now_ms),
    )


def pattern_record(group_id: str, pattern: str, resolved: ResolvedPattern) -> NewRecord:
    return NewRecord(
        ConsumerGroupRegularExpressionKey(group_id, pattern),
        ConsumerGroupRegularExpressionValue(list(resolved.topics), resolved.version, resolved.resolved_ms),
    )


def pattern_tombstone(group_id: str, pattern: str) -> NewRecord:
    return NewRecord(ConsumerGroupRegularExpressionKey(group_id, pattern), None)


def member_tombstones(group_id: str, member_id: str) -> list[NewRecord]:
    """Tombstones for all records of a member."""
    return [
        NewRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id), None),
        NewRecord(ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), None),
        NewRecord(ConsumerGroupMemberMetadataKey(group_id, member_id), None),
    ]


def consumer_group_tombstones(group: ConsumerGroup) -> list[NewRecord]:
    """Tombstones for all records of a consumer group, the group's own last."""
    records = [record for member_id in group.members for record in member_tombstones(group.id, member_id)]
    records += [pattern_tombstone(group.id, pattern) for pattern in group.patterns]
    records.append(NewRecord(ConsumerGroupTargetAssignmentMetadataKey(group.id), None))
    records.append(NewRecord(ConsumerGroupMetadataKey(group.id), None))
    return records


def replay_consumer_record(group: ConsumerGroup, key: Data, value: Data | None) -> None:
    """Apply one record of a consumer group; the group's own tombstone is handled by the caller."""
    replay = _REPLAYS.get(type(key))
    if replay is not None:
        replay(group, key, value)


def by_topic(partitions: Iterable[TopicIdPartition]) -> dict[bytes, list[int]]:
    """Sorted partitions by topic."""
    topics: dict[bytes, list[int]] = {}
    for topic_id, number in sorted(partitions):
        topics.setdefault(topic_id, []).append(number)
    return topics


def _replay_epoch(
    group: ConsumerGroup, key: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue | None
) -> None:
    if value is not None:
        group.epoch, group.metadata_hash = value.epoch, value.metadata_hash


def _replay_member(
    group: ConsumerGroup,
    key: ConsumerGroupMemberMetadataKey,
    value: ConsumerGroupMemberMetadataValue | None,
) -> None:
    if value is None:
        group.remove(key.member_id)
    else:
        group.put(_member(group, key.member_id, value))


def _replay_current(
    group: ConsumerGroup,
    key: ConsumerGroupCurrentMemberAssignmentKey,
    value: ConsumerGroupCurrentMemberAssignmentValue | None,
) -> None:
    member = group.members.get(key.member_id)
    if value is not None:
        is_known = value.state in MemberState.__members__.values()
        group.put(
            replace(
                member or ConsumerMember(key.member_id),
                epoch=value.member_epoch,
                previous_epoch=value.previous_member_epoch,
                state=MemberState(value.state) if is_known else MemberState.UNKNOWN,
                assigned=_read_epochs(value.assigned_partitions, value.member_epoch),
                revoking=_read_epochs(value.partitions_pending_revocation, value.member_epoch),
            )
        )
    elif member is not None:
        group.put(replace(member, epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned={}, revoking={}))


def _replay_target(
    group: ConsumerGroup,
    key: ConsumerGroupTargetAssignmentMemberKey,
    value: ConsumerGroupTargetAssignmentMemberValue | None,
) -> None:
    if value is None:
        group.target.pop(key.member_id, None)
    else:
        group.target[key.member_id] = frozenset(
            TopicIdPartition(bytes(topic.topic_id), number)
            for topic in value.topic_partitions
            for number in topic.partitions
        )


def _replay_target_epoch(
    group: ConsumerGroup,
    key: ConsumerGroupTargetAssignmentMetadataKey,
    value: ConsumerGroupTargetAssignmentMetadataValue | None,
) -> None:
    group.assignment_epoch = NEVER_ASSIGNED if value is None else value.assignment_epoch
    group.assignment_ms = 0 if value is None else value.assignment_timestamp


def _replay_pattern(
    group: ConsumerGroup,
    key: ConsumerGroupRegularExpressionKey,
    value: ConsumerGroupRegularExpressionValue | None,
) -> None:
    if value is None:
        group.patterns.pop(key.regular_expression, None)
    else:
        group.patterns[key.regular_expression] = ResolvedPattern(
            tuple(value.topics), value.version, value.timestamp
        )


def _member(group: ConsumerGroup, member_id: str, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
    classic = value.classic_member_metadata
    return replace(
        group.members.get(member_id) or ConsumerMember(member_id),
        instance_id=value.instance_id,
        rack=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=frozenset(value.subscribed_topic_names),
        pattern=value.subscribed_topic_regex,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        assignor=value.server_assignor,
        classic=None
        if classic is None
        else ClassicMetadata(
            classic.session_timeout_ms,
            tuple((protocol.name, bytes(protocol.metadata)) for protocol in classic.supported_protocols),
        ),
    )


def _with_epochs(partitions: Mapping[TopicIdPartition, int]) -> list[TopicPartitions]:
    return [
        TopicPartitions(
            topic_id, numbers, [partitions[TopicIdPartition(topic_id, number)] for number in numbers]
        )
        for topic_id, numbers in by_topic(partitions).items()
    ]


def _read_epochs(topics: Iterable[TopicPartitions], member_epoch: int) -> dict[TopicIdPartition, int]:
    """Assignment epochs; releases before 4.3 do not store them, and the member epoch applies."""
    partitions: dict[TopicIdPartition, int] = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [member_epoch] * len(topic.partitions)
        for index, epoch in zip(topic.partitions, epochs, strict=True):
            partitions[TopicIdPartition(bytes(topic.topic_id), index)] = epoch
    return partitions


_REPLAYS: dict[type[Data], Callable[[ConsumerGroup, Any, Any], None]] = {
    ConsumerGroupMetadataKey: _replay_epoch,
    ConsumerGroupMemberMetadataKey: _replay_member,
    ConsumerGroupCurrentMemberAssignmentKey: _replay_current,
    ConsumerGroupTargetAssignmentMemberKey: _replay_target,
    ConsumerGroupTargetAssignmentMetadataKey: _replay_target_epoch,
    ConsumerGroupRegularExpressionKey: _replay_pattern,
}
"""Partition metadata records of older releases are ignored."""
