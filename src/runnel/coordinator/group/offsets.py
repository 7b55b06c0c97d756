"""OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete."""

from collections.abc import Callable, Mapping

from runnel.coordinator.contract import CoordinatorResult, Moment, ProducerIdAndEpoch
from runnel.coordinator.group.consumer.cluster import TopicIdPartition
from runnel.coordinator.group.consumer.commits import check_commit
from runnel.coordinator.group.consumer.group import ConsumerGroup
from runnel.coordinator.group.group import CONSUMER_PROTOCOL, Committer, Group, GroupState
from runnel.coordinator.group.offset_store import CommittedOffset, GroupOffsets, OffsetStore
from runnel.coordinator.group.records import offset_record, offset_tombstone
from runnel.coordinator.group.settings import GroupSettings
from runnel.coordinator.group.subscription import is_subscribed, subscribed_topics
from runnel.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from runnel.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from runnel.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from runnel.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import NO_ID
from runnel.model.log_config import FOREVER

_NO_OFFSET = -1
_NO_GROUP_ERROR_FROM = 9


def commit(
    groups: dict[str, Group],
    consumers: Mapping[str, ConsumerGroup],
    settings: GroupSettings,
    request: OffsetCommitRequest,
    api_version: int,
    now: Moment,
) -> CoordinatorResult[OffsetCommitResponse]:
    """Handle an OffsetCommit whose topics exist and have both name and id. Raises ApiError."""
    group = groups.get(request.group_id)
    committer = Committer(
        request.member_id, request.group_instance_id, request.generation_id_or_member_epoch, api_version
    )
    if request.group_id in consumers:
        partitions = (
            TopicIdPartition(topic.topic_id, partition.partition_index)
            for topic in request.topics
            for partition in topic.partitions
        )
        check_commit(consumers[request.group_id], committer, partitions)
    else:
        _check_commit(group, request.group_id, committer)
    if group is not None and group.state in (GroupState.STABLE, GroupState.PREPARING):
        member = group.members.get(request.member_id)
        if member is not None:
            member.record_heartbeat(now.steady_ms)
    expires_ms = -1
    if request.retention_time_ms != -1:
        expires_ms = min(now.wall_ms + request.retention_time_ms, FOREVER)
    result = CoordinatorResult[OffsetCommitResponse](OffsetCommitResponse())
    assert result.response is not None
    for topic in request.topics:
        responses = []
        for partition in topic.partitions:
            error = _check_metadata(partition, settings)
            if error is ErrorCode.NONE:
                committed = _committed(partition, topic.topic_id, now.wall_ms, expires_ms)
                result.records.append(
                    offset_record(request.group_id, topic.name, partition.partition_index, committed)
                )
            responses.append(OffsetCommitResponsePartition(partition.partition_index, error.code))
        result.response.topics.append(OffsetCommitResponseTopic(topic.name, topic.topic_id, responses))
    return result


def commit_in_transaction(
    groups: dict[str, Group],
    consumers: Mapping[str, ConsumerGroup],
    settings: GroupSettings,
    request: TxnOffsetCommitRequest,
    api_version: int,
    id_of: Callable[[str], bytes],
    now: Moment,
) -> CoordinatorResult[TxnOffsetCommitResponse]:
    """Handle a TxnOffsetCommit whose topics exist and whose transaction is open. Raises ApiError."""
    committer = Committer(
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        api_version,
        is_transactional=True,
    )
    if request.group_id in consumers:
        partitions = (
            TopicIdPartition(id_of(topic.name), partition.partition_index)
            for topic in request.topics
            for partition in topic.partitions
        )
        check_commit(consumers[request.group_id], committer, partitions)
    else:
        _check_commit(groups.get(request.group_id), request.group_id, committer)
    result = CoordinatorResult[TxnOffsetCommitResponse](
        TxnOffsetCommitResponse(), producer=ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    )
    assert result.response is not None
    for topic in request.topics:
        topic_id = id_of(topic.name)
        responses = []
        for partition in topic.partitions:
            error = _check_metadata(partition, settings)
            if error is ErrorCode.NONE:
                committed = _committed(partition, topic_id, now.wall_ms, expires_ms=-1)
                result.records.append(
                    offset_record(request.group_id, topic.name, partition.partition_index, committed)
                )
            responses.append(TxnOffsetCommitResponsePartition(partition.partition_index, error.code))
        result.response.topics.append(TxnOffsetCommitResponseTopic(topic.name, responses))
    return result


def fetch(
    store: OffsetStore,
    request: OffsetFetchRequestGroup,
    id_of: Callable[[str], bytes],
    require_stable: bool,
) -> OffsetFetchResponseGroup:
    """The committed offsets of a group; -1 where none is committed.

    `id_of` returns the current topic id of a name, for requests of all offsets. With `require_stable`,
    offsets with pending transactional commits fail with UNSTABLE_OFFSET_COMMIT.
    """
    offsets = store.of(request.group_id)
    if request.topics is not None:
        responses = [_fetch_topic(offsets, topic, require_stable) for topic in request.topics]
    else:
        responses = _fetch_all(offsets, id_of, require_stable)
    return OffsetFetchResponseGroup(group_id=request.group_id, topics=responses)


def delete(
    groups: dict[str, Group],
    consumers: Mapping[str, ConsumerGroup],
    store: OffsetStore,
    request: OffsetDeleteRequest,
) -> CoordinatorResult[OffsetDeleteResponse]:
    """Handle an OffsetDelete; topics that a member is subscribed to are rejected. Raises ApiError."""
    if not request.group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    is_subscribed_to = _subscription_of(groups, consumers, request.group_id)
    result = CoordinatorResult[OffsetDeleteResponse](OffsetDeleteResponse())
    assert result.response is not None
    offsets = store.of(request.group_id)
    for topic in request.topics:
        deleted = _delete_topic(request.group_id, offsets, topic, is_subscribed_to(topic.name), result)
        result.response.topics.append(deleted)
    return result


def _subscription_of(
    groups: dict[str, Group], consumers: Mapping[str, ConsumerGroup], group_id: str
) -> Callable[[str], bool]:
    """A predicate: may the members of the group be subscribed to a topic? Raises ApiError."""
    if group_id in consumers:
        return consumers[group_id].subscribed_topics().__contains__
    group = groups.get(group_id)
    if group is None:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id} does not exist")
    if group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER_PROTOCOL:
        raise ApiError(
            ErrorCode.NON_EMPTY_GROUP, f"group {group.id} has members whose subscriptions are unknown"
        )
    topics = subscribed_topics(group)
    return lambda topic: is_subscribed(group, topics, topic)


def _check_commit(group: Group | None, group_id: str, committer: Committer) -> None:
    if group is not None:
        group.check_commit(committer)
    elif committer.generation >= 0:
        has_error = not committer.is_transactional and committer.api_version >= _NO_GROUP_ERROR_FROM
        error = ErrorCode.GROUP_ID_NOT_FOUND if has_error else ErrorCode.ILLEGAL_GENERATION
        raise ApiError(error, f"group {group_id} does not exist")
    # Without a generation the sender is an admin client, or a consumer with manual assignment.


def _check_metadata(
    partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition, settings: GroupSettings
) -> ErrorCode:
    # As in Kafka, the limit applies to characters despite the name of the config.
    is_too_long = len(partition.committed_metadata or "") > settings.offset_metadata_bytes_max
    return ErrorCode.OFFSET_METADATA_TOO_LARGE if is_too_long else ErrorCode.NONE


def _committed(
    partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
    topic_id: bytes,
    now_ms: int,
    expires_ms: int,
) -> CommittedOffset:
    return CommittedOffset(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        committed_ms=now_ms,
        expires_ms=expires_ms,
        topic_id=topic_id,
    )


def _fetch_topic(
    offsets: GroupOffsets, topic: OffsetFetchRequestTopics, require_stable: bool
) -> OffsetFetchResponseTopics:
    partitions = offsets.committed.get(topic.name, {})
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            _unstable(index)
            if require_stable and offsets.is_pending(topic.name, index)
            else _fetched(index, _of_this_topic(partitions.get(index), topic.topic_id))
            for index in topic.partition_indexes
        ],
    )


def _fetch_all(
    offsets: GroupOffsets, id_of: Callable[[str], bytes], require_stable: bool
) -> list[OffsetFetchResponseTopics]:
    responses = []
    for topic, partitions in offsets.committed.items():
        topic_id = id_of(topic)
        current = [
            _unstable(index)
            if require_stable and offsets.is_pending(topic, index)
            else _fetched(index, committed)
            for index, committed in partitions.items()
            if _of_this_topic(committed, topic_id) is not None
        ]
        if current:
            responses.append(OffsetFetchResponseTopics(name=topic, topic_id=topic_id, partitions=current))
    return responses


def _of_this_topic(committed: CommittedOffset | None, topic_id: bytes) -> CommittedOffset | None:
    """Ignore the offset of a deleted topic if a topic was recreated with the same name."""
    if committed is None or NO_ID in (topic_id, committed.topic_id) or committed.topic_id == topic_id:
        return committed
    return None


def _fetched(partition: int, committed: CommittedOffset | None) -> OffsetFetchResponsePartitions:
    if committed is None:
        return OffsetFetchResponsePartitions(
            partition_index=partition, committed_offset=_NO_OFFSET, metadata=""
        )
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def _unstable(partition: int) -> OffsetFetchResponsePartitions:
    response = _fetched(partition, None)
    response.error_code = ErrorCode.UNSTABLE_OFFSET_COMMIT.code
    return response


def _delete_topic(
    group_id: str,
    offsets: GroupOffsets,
    topic: OffsetDeleteRequestTopic,
    is_subscribed_to: bool,
    result: CoordinatorResult[OffsetDeleteResponse],
) -> OffsetDeleteResponseTopic:
    known = () if is_subscribed_to else offsets.partitions_of(topic.name)
    error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed_to else ErrorCode.NONE
    responses = []
    for partition in topic.partitions:
        index = partition.partition_index
        if index in known:
            result.records.append(offset_tombstone(group_id, topic.name, index))
        responses.append(OffsetDeleteResponsePartition(index, error.code))
    return OffsetDeleteResponseTopic(name=topic.name, partitions=responses)
