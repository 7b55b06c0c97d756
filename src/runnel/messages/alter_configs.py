"""AlterConfigs: replace all configs of a resource; configs that are not listed revert to their defaults.

v2 flexible
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, boolean, field, int8, int16, int32, string


class AlterableConfig(Struct):
    name: string = ""
    value: string | None = field()


class AlterConfigsResource(Struct):
    resource_type: int8 = 0  # 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group
    resource_name: string = ""
    configs: list[AlterableConfig] = field()


class AlterConfigsRequest(Request, api=33, versions="0-2", flexible="2+"):
    resources: list[AlterConfigsResource] = field()
    validate_only: boolean = False


class AlterConfigsResourceResponse(Struct):
    error_code: int16 = 0
    error_message: string | None = field()
    resource_type: int8 = 0
    resource_name: string = ""


class AlterConfigsResponse(Response, api=33, versions="0-2", flexible="2+"):
    throttle_time_ms: int32 = 0
    responses: list[AlterConfigsResourceResponse] = field()
