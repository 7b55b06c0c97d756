"""UpdateFeatures: choose the level that the cluster works at."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.controller.feature_changes import decide_update_features
from runnel.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse


@handles(UpdateFeaturesRequest)
async def update_features(request: UpdateFeaturesRequest, ctx: Context) -> UpdateFeaturesResponse:
    """All updates happen, or none.

    v1 validate only, kinds of downgrade · v2 no results per feature
    """
    return await ctx.broker.metadata.change(
        lambda image: decide_update_features(image, request, ctx.api_version)
    )
