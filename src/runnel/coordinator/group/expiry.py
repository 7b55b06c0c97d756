"""Expiration of offsets and empty groups, and deletion of groups and of the offsets of deleted topics.

The retention time of an offset starts

* in a group without a protocol type (a simple group): when it was committed;
* in an Empty group: when the group became empty;
* in a Stable group of consumers: when it was committed, if no member is subscribed to its topic;
* in a group that is rebalancing, or has another protocol type: never.

An offset with a pending transactional commit does not expire, nor does its group.
"""

from collections.abc import Collection, Iterable, Mapping

from runnel.coordinator.contract import CoordinatorResult, Moment, NewRecord
from runnel.coordinator.group.consumer.group import ConsumerGroup
from runnel.coordinator.group.consumer.records import consumer_group_tombstones
from runnel.coordinator.group.group import CONSUMER_PROTOCOL, Group, GroupState
from runnel.coordinator.group.offset_store import CommittedOffset, GroupOffsets, OffsetStore
from runnel.coordinator.group.records import group_tombstone, offset_tombstone
from runnel.coordinator.group.settings import GroupSettings
from runnel.coordinator.group.subscription import subscribed_topics
from runnel.messages.delete_groups import DeletableGroupResult
from runnel.model.errors import ErrorCode


def expire(
    groups: Iterable[Group], store: OffsetStore, settings: GroupSettings, now: Moment
) -> CoordinatorResult[None]:
    """Remove expired offsets of these groups, and empty groups without offsets."""
    records: list[NewRecord] = []
    for group in groups:
        offsets = store.of(group.id)
        expired = _expired(group, offsets, settings, now.wall_ms)
        records += expired
        has_no_offsets = len(expired) == sum(map(len, offsets.committed.values())) and not offsets.pending
        if has_no_offsets and group.state is GroupState.EMPTY and not group.pending:
            records.append(group_tombstone(group.id))
    return CoordinatorResult(records=records, is_atomic=False)


def expired_of_consumers(
    groups: Iterable[ConsumerGroup], store: OffsetStore, settings: GroupSettings, now: Moment
) -> list[NewRecord]:
    """The same for consumer groups, whose offsets expire after their commit unless a member is subscribed."""
    records: list[NewRecord] = []
    for group in groups:
        offsets, topics = store.of(group.id), group.subscribed_topics()
        expired = [
            offset_tombstone(group.id, topic, partition)
            for topic, partition, committed in offsets.all_committed()
            if topic not in topics
            and now.wall_ms - committed.committed_ms >= settings.offsets_retention_ms
            and not offsets.is_pending(topic, partition)
        ]
        records += expired
        has_no_offsets = len(expired) == sum(map(len, offsets.committed.values())) and not offsets.pending
        if has_no_offsets and not group.members:
            records += consumer_group_tombstones(group)
    return records


def delete_groups(
    groups: dict[str, Group],
    consumers: Mapping[str, ConsumerGroup],
    store: OffsetStore,
    group_ids: Collection[str],
) -> CoordinatorResult[list[DeletableGroupResult]]:
    """Delete groups without members, and their offsets; the group's own tombstones are last."""
    results: list[DeletableGroupResult] = []
    records: list[NewRecord] = []
    for group_id in group_ids:
        group, consumer_group = groups.get(group_id), consumers.get(group_id)
        is_empty = group is None or group.state is GroupState.EMPTY
        if consumer_group is not None:
            is_empty = not consumer_group.members
        error = ErrorCode.NONE
        if group is None and consumer_group is None:
            error = ErrorCode.GROUP_ID_NOT_FOUND
        elif not is_empty:
            error = ErrorCode.NON_EMPTY_GROUP
        else:
            records += [
                offset_tombstone(group_id, topic, index) for topic, index in store.of(group_id).partitions()
            ]
            if consumer_group is not None:
                records += consumer_group_tombstones(consumer_group)
            else:
                records.append(group_tombstone(group_id))
        results.append(DeletableGroupResult(group_id=group_id, error_code=error.code))
    return CoordinatorResult(results, records=records, is_atomic=False)


def topics_deleted(store: OffsetStore, topics: Collection[str]) -> CoordinatorResult[None]:
    """Remove the committed and pending offsets of deleted topics."""
    records = [
        offset_tombstone(group_id, topic, partition)
        for group_id, offsets in store.groups()
        for topic in topics
        for partition in offsets.partitions_of(topic)
    ]
    return CoordinatorResult(records=records, is_atomic=False)


def _expired(group: Group, offsets: GroupOffsets, settings: GroupSettings, now_ms: int) -> list[NewRecord]:
    if not offsets.committed:
        return []
    topics = frozenset[str]()
    if group.protocol_type is not None and group.state is not GroupState.EMPTY:
        if group.protocol_type != CONSUMER_PROTOCOL or group.state is not GroupState.STABLE:
            return []
        known = subscribed_topics(group)
        if known is None:
            return []
        topics = known
    return [
        offset_tombstone(group.id, topic, partition)
        for topic, partition, committed in offsets.all_committed()
        if topic not in topics
        and _is_expired(group, committed, settings.offsets_retention_ms, now_ms)
        and not offsets.is_pending(topic, partition)
    ]


def _is_expired(group: Group, committed: CommittedOffset, retention_ms: int, now_ms: int) -> bool:
    if committed.expires_ms != -1:
        return now_ms >= committed.expires_ms
    start_ms = committed.committed_ms
    is_empty = group.protocol_type is not None and group.state is GroupState.EMPTY
    if is_empty and group.state_since_ms != -1:
        start_ms = group.state_since_ms
    return now_ms - start_ms >= retention_ms
