"""UpdateFeatures: change the finalized levels of cluster features.

v1 kinds of downgrade, dry run · v2 one result for all
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, boolean, field, int8, int16, int32, string


class FeatureUpdateKey(Struct):
    feature: string = ""
    max_version_level: int16 = 0  # 0 turns the feature off
    allow_downgrade: boolean = field("0")
    upgrade_type: int8 = field("1+", default=1)  # 1 upgrade, 2 safe downgrade, 3 unsafe downgrade


class UpdateFeaturesRequest(Request, api=57, versions="0-2", flexible="0+"):
    timeout_ms: int32 = 60000
    feature_updates: list[FeatureUpdateKey] = field()
    validate_only: boolean = field("1+")


class UpdatableFeatureResult(Struct):
    feature: string = ""
    error_code: int16 = 0
    error_message: string | None = field()


class UpdateFeaturesResponse(Response, api=57, versions="0-2", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = field()
    results: list[UpdatableFeatureResult] = field("0-1")
