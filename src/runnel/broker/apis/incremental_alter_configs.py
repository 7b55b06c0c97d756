"""IncrementalAlterConfigs: change individual settings."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.controller.config_changes import decide_incremental_alter_configs
from runnel.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from runnel.model.errors import ApiError


@handles(IncrementalAlterConfigsRequest)
async def incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, ctx: Context
) -> IncrementalAlterConfigsResponse:
    """Set, delete, append and subtract. Changes are in effect before the response.

    v1 flexible
    """
    metadata = ctx.broker.metadata
    try:
        return await metadata.change(
            lambda image: decide_incremental_alter_configs(image, metadata.settings, request)
        )
    except ApiError as error:
        return IncrementalAlterConfigsResponse(
            responses=[
                AlterConfigsResourceResponse(
                    error.code, str(error), resource.resource_type, resource.resource_name
                )
                for resource in request.resources
            ]
        )
