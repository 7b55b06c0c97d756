"""IncrementalAlterConfigs: set, delete, append to or subtract from individual configs.

v1 flexible
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, boolean, field, int8, int16, int32, string


class AlterableConfig(Struct):
    name: string = ""
    config_operation: int8 = 0  # 0 set, 1 delete, 2 append, 3 subtract
    value: string | None = field()


class AlterConfigsResource(Struct):
    resource_type: int8 = 0  # 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group
    resource_name: string = ""
    configs: list[AlterableConfig] = field()


class IncrementalAlterConfigsRequest(Request, api=44, versions="0-1", flexible="1+"):
    resources: list[AlterConfigsResource] = field()
    validate_only: boolean = False


class AlterConfigsResourceResponse(Struct):
    error_code: int16 = 0
    error_message: string | None = field()
    resource_type: int8 = 0
    resource_name: string = ""


class IncrementalAlterConfigsResponse(Response, api=44, versions="0-1", flexible="1+"):
    throttle_time_ms: int32 = 0
    responses: list[AlterConfigsResourceResponse] = field()
