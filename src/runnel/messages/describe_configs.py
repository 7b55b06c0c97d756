"""DescribeConfigs."""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, boolean, field, int8, int16, int32, string


class DescribeConfigsResource(Struct):
    resource_type: int8 = 0
    resource_name: string = ""
    configuration_keys: list[string] | None = field()


class DescribeConfigsRequest(Request, api=32, versions="1-4", flexible="4+"):
    resources: list[DescribeConfigsResource] = field()
    include_synonyms: boolean = False
    include_documentation: boolean = field("3+")


class DescribeConfigsSynonym(Struct):
    name: string = ""
    value: string | None = field()
    source: int8 = 0


class DescribeConfigsResourceResult(Struct):
    name: string = ""
    value: string | None = field()
    read_only: boolean = False
    config_source: int8 = -1
    is_sensitive: boolean = False
    synonyms: list[DescribeConfigsSynonym] = field()
    config_type: int8 = field("3+")
    documentation: string | None = field("3+")


class DescribeConfigsResult(Struct):
    error_code: int16 = 0
    error_message: string | None = field()
    resource_type: int8 = 0
    resource_name: string = ""
    configs: list[DescribeConfigsResourceResult] = field()


class DescribeConfigsResponse(Response, api=32, versions="1-4", flexible="4+"):
    throttle_time_ms: int32 = 0
    results: list[DescribeConfigsResult] = field()
