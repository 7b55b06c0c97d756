"""ListConfigResources: resources that can have settings."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.controller.image import MetadataImage
from runnel.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from runnel.model.configs import ResourceType
from runnel.model.errors import ApiError, ErrorCode

LISTED_TYPES = (
    ResourceType.TOPIC,
    ResourceType.BROKER,
    ResourceType.BROKER_LOGGER,
    ResourceType.CLIENT_METRICS,
    ResourceType.GROUP,
)


@handles(ListConfigResourcesRequest)
def list_config_resources(request: ListConfigResourcesRequest, ctx: Context) -> ListConfigResourcesResponse:
    """Topics and brokers that exist; groups and client metrics subscriptions that have settings.

    v0 client metrics subscriptions only · v1 resource types, empty for all
    """
    types = [ResourceType.CLIENT_METRICS] if ctx.api_version == 0 else request.resource_types or LISTED_TYPES
    for resource_type in types:
        if resource_type not in LISTED_TYPES:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported resource type {resource_type}")
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(name, resource_type)
            for resource_type in dict.fromkeys(types)
            for name in _names(ctx.broker.metadata.image, resource_type)
        ]
    )


def _names(image: MetadataImage, resource_type: int) -> list[str]:
    match resource_type:
        case ResourceType.TOPIC:
            return list(image.topics)
        case ResourceType.BROKER | ResourceType.BROKER_LOGGER:
            return [str(node_id) for node_id in sorted(image.brokers)]
    return [resource.name for resource in image.configs if resource.type == resource_type]
