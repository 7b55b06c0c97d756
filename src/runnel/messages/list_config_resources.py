"""ListConfigResources: the resources that have configs.

v0 lists client metrics only · v1 any kind
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int8, int16, int32, string


class ListConfigResourcesRequest(Request, api=74, versions="0-1", flexible="0+"):
    resource_types: list[int8] = field("1+")  # empty for any


class ConfigResource(Struct):
    resource_name: string = ""
    resource_type: int8 = field("1+", default=16)


class ListConfigResourcesResponse(Response, api=74, versions="0-1", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    config_resources: list[ConfigResource] = field()
