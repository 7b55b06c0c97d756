"""DeleteGroups: delete empty groups and their offsets.

v2 flexible
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int16, int32, string


class DeleteGroupsRequest(Request, api=42, versions="0-2", flexible="2+"):
    groups_names: list[string] = field()


class DeletableGroupResult(Struct):
    group_id: string = ""
    error_code: int16 = 0


class DeleteGroupsResponse(Response, api=42, versions="0-2", flexible="2+"):
    throttle_time_ms: int32 = 0
    results: list[DeletableGroupResult] = field()
