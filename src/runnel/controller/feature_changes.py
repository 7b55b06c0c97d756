"""UpdateFeatures: changing the finalized level of features."""

from runnel.controller.features import METADATA_VERSION, SUPPORTED_FEATURES
from runnel.controller.image import MetadataImage
from runnel.controller.result import ControllerResult, duplicates_in
from runnel.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from runnel.model.errors import ApiError, ErrorCode
from runnel.schemas.metadata import FeatureLevelRecord, MetadataRecord

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


def decide_update_features(
    image: MetadataImage, request: UpdateFeaturesRequest, api_version: int
) -> ControllerResult[UpdateFeaturesResponse]:
    """Change feature levels, all or none: one invalid update fails the request."""
    if duplicates_in(update.feature for update in request.feature_updates):
        raise ApiError(ErrorCode.INVALID_REQUEST, "A feature can be updated only once in a request.")
    records: list[MetadataRecord] = []
    for update in request.feature_updates:
        records += _update(image, update, api_version)
    results = [
        UpdatableFeatureResult(update.feature, error_message=None) for update in request.feature_updates
    ]
    response = UpdateFeaturesResponse(error_message=None, results=results)
    return ControllerResult([] if request.validate_only else records, response)


def _update(image: MetadataImage, update: FeatureUpdateKey, api_version: int) -> list[MetadataRecord]:
    name, level = update.feature, update.max_version_level
    if name not in SUPPORTED_FEATURES:
        raise _bad(name, level, "this broker does not support this feature")
    if update.upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _bad(name, level, "The controller does not support the given upgrade type.")
    present = image.features.get(name, 0)
    if level == present:
        return []
    lowest, highest = SUPPORTED_FEATURES[name]
    if name == METADATA_VERSION and level < 1:
        raise _bad(name, level, "A feature version cannot be less than 1.")
    if level and not lowest <= level <= highest:
        raise _bad(name, level, f"this broker only supports versions {lowest}-{highest}")
    may_go_down = update.allow_downgrade if api_version == 0 else update.upgrade_type != UPGRADE
    if level < present and not may_go_down:
        raise _bad(
            name,
            level,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
            "unsafe downgrade.",
        )
    if level > present and api_version > 0 and update.upgrade_type != UPGRADE:
        raise _bad(name, level, "Can't downgrade to a newer version.")
    return [FeatureLevelRecord(name, level)]


def _bad(name: str, level: int, complaint: str) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"Invalid update version {level} for feature {name}. {complaint[0].upper()}{complaint[1:]}",
    )
