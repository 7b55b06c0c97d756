"""CreateAcls: create ACLs.

v1 prefixed names · v2 flexible · v3 users as resources
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int8, int16, int32, string


class AclCreation(Struct):
    resource_type: int8 = 0
    resource_name: string = ""
    resource_pattern_type: int8 = 3  # 3 literal, 4 prefixed
    principal: string = ""
    host: string = ""
    operation: int8 = 0
    permission_type: int8 = 0


class CreateAclsRequest(Request, api=30, versions="1-3", flexible="2+"):
    creations: list[AclCreation] = field()


class AclCreationResult(Struct):
    error_code: int16 = 0
    error_message: string | None = field()


class CreateAclsResponse(Response, api=30, versions="1-3", flexible="2+"):
    throttle_time_ms: int32 = 0
    results: list[AclCreationResult] = field()
