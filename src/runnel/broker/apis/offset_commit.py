"""OffsetCommit: store committed offsets of a group."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.group_coordinator import GroupDriver
from runnel.broker.runtime.promise import MaybePromise
from runnel.controller.image import MetadataImage
from runnel.coordinator.contract import CoordinatorResult
from runnel.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from runnel.model.errors import ErrorCode

_TOPIC_IDS_FROM = 10


@handles(OffsetCommitRequest)
def offset_commit(request: OffsetCommitRequest, ctx: Context) -> MaybePromise[OffsetCommitResponse]:
    """Store offsets of existing partitions.

    v2-4 retention time · v3 throttle time · v6 leader epoch · v7 static members ·
    v8 flexible · v9 consumer groups (KIP-848) · v10 topic ids instead of names
    """
    image = ctx.broker.metadata.image
    refused = [_split(topic, image, ctx.api_version) for topic in request.topics]

    def decide(driver: GroupDriver) -> CoordinatorResult[OffsetCommitResponse]:
        decision = driver.shard.commit(request, ctx.api_version, driver.now())
        if decision.response is not None:
            _merge(decision.response, refused)
        return decision

    def refuse(error: ErrorCode) -> OffsetCommitResponse:
        accepted = [
            OffsetCommitResponseTopic(topic.name, topic.topic_id, _answers(topic, error))
            for topic in request.topics
        ]
        response = OffsetCommitResponse(topics=accepted)
        _merge(response, refused)
        return response

    if not any(topic.partitions for topic in request.topics):
        return refuse(ErrorCode.NONE)
    return ctx.broker.groups.write(request.group_id, decide, refuse)


def _split(
    topic: OffsetCommitRequestTopic, image: MetadataImage, api_version: int
) -> list[OffsetCommitResponsePartition]:
    """Resolve name and id of a topic, remove partitions that do not exist; returns their errors."""
    if api_version >= _TOPIC_IDS_FROM:
        known = image.topics_by_id.get(topic.topic_id)
        error = ErrorCode.UNKNOWN_TOPIC_ID
    else:
        known = image.topics.get(topic.name)
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if known is None:
        answers = _answers(topic, error)
        topic.partitions = []
        return answers
    topic.name, topic.topic_id = known.name, known.id
    count = len(known.partitions)
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answers = [
        OffsetCommitResponsePartition(index, error.code)
        for part in topic.partitions
        if not 0 <= (index := part.partition_index) < count
    ]
    if answers:
        topic.partitions = [part for part in topic.partitions if 0 <= part.partition_index < count]
    return answers


def _answers(topic: OffsetCommitRequestTopic, error: ErrorCode) -> list[OffsetCommitResponsePartition]:
    return [OffsetCommitResponsePartition(part.partition_index, error.code) for part in topic.partitions]


def _merge(response: OffsetCommitResponse, refused: list[list[OffsetCommitResponsePartition]]) -> None:
    for topic, answers in zip(response.topics, refused, strict=True):
        topic.partitions += answers
