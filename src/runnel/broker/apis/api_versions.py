"""ApiVersions: the supported APIs and versions."""

import re

from runnel.broker.apis.handlers import APIS, BROKER_APIS, CONTROLLER_APIS, handles
from runnel.broker.runtime.context import Context
from runnel.controller.features import KRAFT_VERSION, SUPPORTED_FEATURES
from runnel.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from runnel.model.errors import ErrorCode

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@handles(ApiVersionsRequest)
def api_versions(request: ApiVersionsRequest, ctx: Context) -> ApiVersionsResponse:
    """List every API with a handler, and the features of the cluster.

    v1 throttle time · v3 flexible, client software, features · v4 minimum feature level 0
    """
    if ctx.api_version >= 3:
        names = (request.client_software_name, request.client_software_version)
        if not all(_SOFTWARE.fullmatch(name) for name in names):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST.code)
    if ctx.session.authentication is not None:
        ctx.session.authentication.versions_sent()
    # Clients of version 3 fail on a feature with minimum level 0 (KAFKA-17492).
    lowest = 0 if ctx.api_version >= 4 else 1
    image, kraft_version = ctx.broker.metadata.image, ctx.broker.quorum.kraft_version
    finalized = image.features | ({KRAFT_VERSION: kraft_version} if kraft_version else {})
    return ApiVersionsResponse(
        api_keys=_api_keys(is_controller=ctx.listener in ctx.broker.controller_listeners),
        supported_features=[
            SupportedFeatureKey(name, max(first, lowest), last)
            for name, (first, last) in SUPPORTED_FEATURES.items()
        ],
        finalized_features_epoch=image.version,
        finalized_features=[
            FinalizedFeatureKey(name, level, level)
            for name, level in finalized.items()
            if name in SUPPORTED_FEATURES
        ],
    )


def unsupported(*, is_controller: bool) -> ApiVersionsResponse:
    """The response to an unsupported version, from which the client selects a supported one."""
    api_keys = _api_keys(is_controller=is_controller)
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION.code, api_keys=api_keys)


def _api_keys(*, is_controller: bool) -> list[ApiVersion]:
    served = CONTROLLER_APIS if is_controller else BROKER_APIS
    return [
        ApiVersion(
            key, row.version_min if row.advertised_min is None else row.advertised_min, row.version_max
        )
        for key, row in APIS.items()
        if key in served
    ]
