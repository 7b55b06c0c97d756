"""AlterConfigs: replace the settings of resources."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.controller.config_changes import decide_alter_configs
from runnel.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from runnel.model.errors import ApiError


@handles(AlterConfigsRequest)
async def alter_configs(request: AlterConfigsRequest, ctx: Context) -> AlterConfigsResponse:
    """Settings that are not given revert to their default. Changes are in effect before the response.

    v2 flexible
    """
    metadata = ctx.broker.metadata
    try:
        return await metadata.change(lambda image: decide_alter_configs(image, metadata.settings, request))
    except ApiError as error:
        return AlterConfigsResponse(
            responses=[
                AlterConfigsResourceResponse(
                    error.code, str(error), resource.resource_type, resource.resource_name
                )
                for resource in request.resources
            ]
        )
