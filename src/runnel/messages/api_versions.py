"""ApiVersions: the API versions that the broker supports. The first request on most connections.

v3 flexible, client software name, broker features · v4 features with a minimum of
0. An unsupported version is answered in v0 with UNSUPPORTED_VERSION and the list; the
response header never has tagged fields.
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, boolean, field, int16, int32, int64, string


class ApiVersionsRequest(Request, api=18, versions="0-4", flexible="3+"):
    client_software_name: string = field("3+")
    client_software_version: string = field("3+")


class ApiVersion(Struct):
    api_key: int16 = 0
    min_version: int16 = 0
    max_version: int16 = 0


class SupportedFeatureKey(Struct):
    name: string = ""
    min_version: int16 = 0
    max_version: int16 = 0


class FinalizedFeatureKey(Struct):
    name: string = ""
    max_version_level: int16 = 0
    min_version_level: int16 = 0


class ApiVersionsResponse(Response, api=18, versions="0-4", flexible="3+"):
    error_code: int16 = 0
    api_keys: list[ApiVersion] = field()
    throttle_time_ms: int32 = field("1+")
    supported_features: list[SupportedFeatureKey] = field("3+", tag=0)
    finalized_features_epoch: int64 = field("3+", default=-1, tag=1)  # -1 while unknown
    finalized_features: list[FinalizedFeatureKey] = field("3+", tag=2)
    zk_migration_ready: boolean = field("3+", tag=3)  # always false
