"""DescribeGroups: classic groups with their members.

v3 allowed operations · v4 static members · v5 flexible · v6 GROUP_ID_NOT_FOUND for unknown groups
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, boolean, bytes_, field, int16, int32, string


class DescribeGroupsRequest(Request, api=15, versions="0-6", flexible="5+"):
    groups: list[string] = field()
    include_authorized_operations: boolean = field("3+")


class DescribedGroupMember(Struct):
    member_id: string = ""
    group_instance_id: string | None = field("4+", default=None)
    client_id: string = ""
    client_host: string = ""
    member_metadata: bytes_ = field()
    member_assignment: bytes_ = field()


class DescribedGroup(Struct):
    error_code: int16 = 0
    error_message: string | None = field("6+", default=None)
    group_id: string = ""
    group_state: string = ""
    protocol_type: string = ""
    protocol_data: string = ""  # the chosen assignor
    members: list[DescribedGroupMember] = field()
    # bit field of authorized operations; the default if not requested
    authorized_operations: int32 = field("3+", default=-0x80000000)


class DescribeGroupsResponse(Response, api=15, versions="0-6", flexible="5+"):
    throttle_time_ms: int32 = field("1+")
    groups: list[DescribedGroup] = field()
