"""DeleteAcls: delete the ACLs that match filters.

v1 prefixed names · v2 flexible · v3 users as resources
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int8, int16, int32, string


class DeleteAclsFilter(Struct):
    resource_type_filter: int8 = 0
    resource_name_filter: string | None = field()  # null matches any, as below
    pattern_type_filter: int8 = 3  # 1 any, 2 match, 3 literal, 4 prefixed
    principal_filter: string | None = field()
    host_filter: string | None = field()
    operation: int8 = 0
    permission_type: int8 = 0


class DeleteAclsRequest(Request, api=31, versions="1-3", flexible="2+"):
    filters: list[DeleteAclsFilter] = field()


class DeleteAclsMatchingAcl(Struct):
    error_code: int16 = 0
    error_message: string | None = field()
    resource_type: int8 = 0
    resource_name: string = ""
    pattern_type: int8 = 3
    principal: string = ""
    host: string = ""
    operation: int8 = 0
    permission_type: int8 = 0


class DeleteAclsFilterResult(Struct):
    error_code: int16 = 0
    error_message: string | None = field()
    matching_acls: list[DeleteAclsMatchingAcl] = field()


class DeleteAclsResponse(Response, api=31, versions="1-3", flexible="2+"):
    throttle_time_ms: int32 = 0
    filter_results: list[DeleteAclsFilterResult] = field()
