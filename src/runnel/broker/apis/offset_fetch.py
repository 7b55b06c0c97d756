"""OffsetFetch: committed offsets of groups."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.promise import MaybePromise, gather
from runnel.controller.image import MetadataImage
from runnel.coordinator.group.shard import GroupShard
from runnel.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from runnel.model.errors import ErrorCode
from runnel.model.ids import NO_ID

_TOP_LEVEL_ERROR_VERSION = 2
_BATCHED_VERSION = 8
_TOPIC_IDS_VERSION = 10


@handles(OffsetFetchRequest)
def offset_fetch(request: OffsetFetchRequest, ctx: Context) -> MaybePromise[OffsetFetchResponse]:
    """Fetch committed offsets; all offsets of a group if no topics are given.

    v2 all topics, top-level error · v3 throttle time · v5 leader epoch · v6 flexible ·
    v7 require stable offsets · v8 batched groups ·
    v9 members of consumer groups (KIP-848) · v10 topic ids
    """
    answer: MaybePromise[OffsetFetchResponse]
    if ctx.api_version >= _BATCHED_VERSION:
        parts = [_fetch(group, request.require_stable, ctx) for group in request.groups]
        answer = gather(parts, lambda groups: OffsetFetchResponse(groups=groups))
        return answer
    topics = request.topics
    group = OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=None
        if topics is None
        else [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in topics
        ],
    )
    answer = gather(
        [_fetch(group, request.require_stable, ctx)],
        lambda groups: _single(group, groups[0], ctx.api_version),
    )
    return answer


def _fetch(
    group: OffsetFetchRequestGroup, require_stable: bool, ctx: Context
) -> MaybePromise[OffsetFetchResponseGroup]:
    if ctx.is_response_full:
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code)
    image = ctx.broker.metadata.image
    has_ids = ctx.api_version >= _TOPIC_IDS_VERSION
    unknown = _resolve(group, image, has_ids)

    def id_of(name: str) -> bytes:
        topic = image.topics.get(name)
        return NO_ID if topic is None else topic.id

    def refuse(error: ErrorCode) -> OffsetFetchResponseGroup:
        # Consumers before 3.9 do not retry on COORDINATOR_NOT_AVAILABLE here.
        if error is ErrorCode.COORDINATOR_NOT_AVAILABLE:
            error = ErrorCode.NOT_COORDINATOR
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code)

    def with_unknown(answers: list[OffsetFetchResponseGroup]) -> OffsetFetchResponseGroup:
        (answer,) = answers
        if has_ids:
            # Responses with topic ids cannot contain topics without an id.
            answer.topics = [topic for topic in answer.topics if topic.topic_id != NO_ID]
        if answer.error_code == 0:
            answer.topics += unknown
        return answer

    def fetch(shard: GroupShard) -> OffsetFetchResponseGroup:
        found = shard.fetch_offsets(group, id_of, require_stable)
        ctx.response_elements += 1 + sum(len(topic.partitions) for topic in found.topics)
        return found

    # From the offset of a coordinator that was replaced, a transactional consumer would copy records again.
    answer = ctx.broker.groups.read(group.group_id, fetch, refuse, needs_proof=require_stable)
    return gather([answer], with_unknown)


def _resolve(
    group: OffsetFetchRequestGroup, image: MetadataImage, has_ids: bool
) -> list[OffsetFetchResponseTopics]:
    """Give each topic both name and id; answers for ids that stand for no topic, which are taken out."""
    unknown: list[OffsetFetchResponseTopics] = []
    known: list[OffsetFetchRequestTopics] = []
    for asked in group.topics or ():
        topic = image.topics_by_id.get(asked.topic_id) if has_ids else image.topics.get(asked.name)
        if topic is not None:
            asked.name, asked.topic_id = topic.name, topic.id
        if topic is not None or not has_ids:
            known.append(asked)
        else:
            unknown.append(_unknown_id(asked))
    if group.topics is not None:
        group.topics = known
    return unknown


def _unknown_id(asked: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
    code = ErrorCode.UNKNOWN_TOPIC_ID.code
    return OffsetFetchResponseTopics(
        topic_id=asked.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(index, -1, metadata="", error_code=code)
            for index in asked.partition_indexes
        ],
    )


def _single(
    asked: OffsetFetchRequestGroup, group: OffsetFetchResponseGroup, api_version: int
) -> OffsetFetchResponse:
    """The response for one group in the format of versions before 8."""
    if group.error_code and api_version < _TOP_LEVEL_ERROR_VERSION:
        return OffsetFetchResponse(
            topics=[
                OffsetFetchResponseTopic(
                    topic.name,
                    [
                        OffsetFetchResponsePartition(index, -1, metadata="", error_code=group.error_code)
                        for index in topic.partition_indexes
                    ],
                )
                for topic in asked.topics or ()
            ]
        )
    topics = [
        OffsetFetchResponseTopic(
            topic.name,
            [
                OffsetFetchResponsePartition(
                    part.partition_index,
                    part.committed_offset,
                    part.committed_leader_epoch,
                    part.metadata,
                    part.error_code,
                )
                for part in topic.partitions
            ],
        )
        for topic in group.topics
    ]
    return OffsetFetchResponse(topics=topics, error_code=group.error_code)
