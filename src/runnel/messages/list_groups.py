"""ListGroups: the groups that this broker coordinates.

v3 flexible · v4 by state · v5 by type
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int16, int32, string


class ListGroupsRequest(Request, api=16, versions="0-5", flexible="3+"):
    states_filter: list[string] = field("4+")  # empty for any
    types_filter: list[string] = field("5+")  # empty for any


class ListedGroup(Struct):
    group_id: string = ""
    protocol_type: string = ""
    group_state: string = field("4+")
    group_type: string = field("5+")


class ListGroupsResponse(Response, api=16, versions="0-5", flexible="3+"):
    throttle_time_ms: int32 = field("1+")
    error_code: int16 = 0
    groups: list[ListedGroup] = field()
