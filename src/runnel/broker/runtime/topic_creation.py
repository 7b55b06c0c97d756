"""Auto-creation of topics for clients, and creation of internal topics."""

from collections.abc import Iterable
from itertools import repeat
from typing import TYPE_CHECKING

from runnel.controller.image import MetadataImage
from runnel.controller.internal_topics import automatic_topic
from runnel.controller.result import ControllerResult
from runnel.controller.topic_changes import DescribeTopicConfigs, Randomness, decide_create_topics
from runnel.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from runnel.model.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker


def chance(broker: "Broker") -> Randomness:
    """Randomness for new topics."""
    topic_ids = (broker.entropy.id_bytes() for _ in repeat(None))
    return Randomness(topic_ids, broker.entropy.below(max(1, len(broker.metadata.image.brokers))))


async def create_topics(
    broker: "Broker", request: CreateTopicsRequest, describe_configs: DescribeTopicConfigs | None = None
) -> CreateTopicsResponse:
    """Create topics; they are available on return."""
    settings = broker.metadata.settings
    return await broker.metadata.change(
        lambda image: decide_create_topics(image, settings, request, chance(broker), describe_configs)
    )


async def create_missing_topics(broker: "Broker", names: Iterable[str]) -> dict[str, ErrorCode]:
    """Create topics with the broker's defaults; returns an error code for each name."""
    settings = broker.metadata.settings
    wanted = list(dict.fromkeys(names))

    def decide(image: MetadataImage) -> ControllerResult[CreateTopicsResponse]:
        topics = [automatic_topic(image, settings, name) for name in wanted]
        return decide_create_topics(image, settings, CreateTopicsRequest(topics), chance(broker))

    try:
        response = await broker.metadata.change(decide)
    except ApiError as api_error:
        return dict.fromkeys(wanted, api_error.error)
    errors = {result.name: ErrorCode.from_code(result.error_code) for result in response.topics}
    # Created concurrently by another request.
    return {
        name: ErrorCode.NONE if error is ErrorCode.TOPIC_ALREADY_EXISTS else error
        for name, error in errors.items()
    }


async def ensure_internal_topic(broker: "Broker", name: str) -> None:
    """Create a coordinator's topic unless it exists. Raises COORDINATOR_NOT_AVAILABLE."""
    if name in broker.metadata.image.topics:
        return
    error = (await create_missing_topics(broker, [name]))[name]
    if error is not ErrorCode.NONE:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name} cannot be created: {error.name}")
