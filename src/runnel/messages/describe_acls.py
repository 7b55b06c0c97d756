"""DescribeAcls: the ACLs that match a filter.

v1 prefixed names · v2 flexible · v3 users as resources
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int8, int16, int32, string


class DescribeAclsRequest(Request, api=29, versions="1-3", flexible="2+"):
    resource_type_filter: int8 = 0
    resource_name_filter: string | None = field()  # null matches any, as below
    pattern_type_filter: int8 = 3  # 1 any, 2 match, 3 literal, 4 prefixed
    principal_filter: string | None = field()
    host_filter: string | None = field()
    operation: int8 = 0
    permission_type: int8 = 0


class AclDescription(Struct):
    principal: string = ""
    host: string = ""
    operation: int8 = 0
    permission_type: int8 = 0


class DescribeAclsResource(Struct):
    resource_type: int8 = 0
    resource_name: string = ""
    pattern_type: int8 = 3
    acls: list[AclDescription] = field()


class DescribeAclsResponse(Response, api=29, versions="1-3", flexible="2+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = field()
    resources: list[DescribeAclsResource] = field()
