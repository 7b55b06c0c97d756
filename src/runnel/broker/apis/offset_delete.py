"""OffsetDelete: delete committed offsets of a group."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.broker.runtime.group_coordinator import GroupDriver
from runnel.broker.runtime.promise import MaybePromise
from runnel.controller.image import MetadataImage
from runnel.coordinator.contract import CoordinatorResult
from runnel.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
)
from runnel.model.errors import ErrorCode


@handles(OffsetDeleteRequest)
def offset_delete(request: OffsetDeleteRequest, ctx: Context) -> MaybePromise[OffsetDeleteResponse]:
    """Delete committed offsets; GROUP_SUBSCRIBED_TO_TOPIC for topics with subscribers (KIP-496)."""
    image = ctx.broker.metadata.image
    refused = [_split(topic, image) for topic in request.topics]

    def decide(driver: GroupDriver) -> CoordinatorResult[OffsetDeleteResponse]:
        decision = driver.shard.delete_offsets(request)
        if decision.response is not None:
            for topic, answers in zip(decision.response.topics, refused, strict=True):
                topic.partitions += answers
        return decision

    return ctx.broker.groups.write(
        request.group_id, decide, lambda error: OffsetDeleteResponse(error_code=error.code)
    )


def _split(topic: OffsetDeleteRequestTopic, image: MetadataImage) -> list[OffsetDeleteResponsePartition]:
    """Remove partitions that do not exist from the request; returns their error responses."""
    known = image.topics.get(topic.name)
    count = 0 if known is None else len(known.partitions)
    missing = [index for part in topic.partitions if not 0 <= (index := part.partition_index) < count]
    topic.partitions = [part for part in topic.partitions if 0 <= part.partition_index < count]
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code
    return [OffsetDeleteResponsePartition(index, code) for index in missing]
