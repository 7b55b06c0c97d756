"""UpdateFeatures: change finalized feature levels."""

from runnel.broker.apis.handlers import handles
from runnel.broker.runtime.context import Context
from runnel.controller.feature_changes import Quorum, decide_update_features, new_kraft_version
from runnel.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse


@handles(UpdateFeaturesRequest)
async def update_features(request: UpdateFeaturesRequest, ctx: Context) -> UpdateFeaturesResponse:
    """Apply all updates atomically.

    v1 validate only, upgrade type · v2 no results per feature
    """
    broker = ctx.broker
    settings, log = broker.settings, broker.quorum
    quorum = Quorum(broker.node_id, log.voters.ids, log.kraft_version)
    response = await broker.metadata.change(
        lambda image: decide_update_features(image, settings, request, ctx.api_version, quorum)
    )
    if new_kraft_version(request, quorum) is not None:
        await log.voter_changes.upgrade(request.timeout_ms)
    return response
