"""UpdateFeatures: change finalized feature levels."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.controller.feature_changes import decide_update_features
from runnel.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse


@handles(UpdateFeaturesRequest)
async def update_features(request: UpdateFeaturesRequest, ctx: Context) -> UpdateFeaturesResponse:
    """Apply all updates atomically.

    v1 validate only, upgrade type · v2 no results per feature
    """
    return await ctx.broker.metadata.change(
        lambda image: decide_update_features(image, request, ctx.api_version)
    )
