"""DescribeConfigs: configs with their values and sources.

v1 synonyms · v3 documentation and type · v4 flexible
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, boolean, field, int8, int16, int32, string


class DescribeConfigsResource(Struct):
    resource_type: int8 = 0  # 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group
    resource_name: string = ""
    configuration_keys: list[string] | None = field()  # null for all


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
    value: string | None = field()  # null if sensitive or unset
    read_only: boolean = False
    config_source: int8 = -1  # 1 topic, 2 broker, 3 cluster, 4 file, 5 default, 6 logger, 7 metrics, 8 group
    is_sensitive: boolean = False
    synonyms: list[DescribeConfigsSynonym] = field()  # the same setting elsewhere, strongest first
    # 1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password
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
