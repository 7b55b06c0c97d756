"""LeaveGroup: members leave a classic group, or are removed from it.

v3 batched · v4 flexible · v5 reason
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int16, int32, string


class MemberIdentity(Struct):
    member_id: string = ""  # empty: by instance id alone
    group_instance_id: string | None = None
    reason: string | None = field("5+", default=None)


class LeaveGroupRequest(Request, api=13, versions="0-5", flexible="4+"):
    group_id: string = ""
    member_id: string = field("0-2")
    members: list[MemberIdentity] = field("3+")


class MemberResponse(Struct):
    member_id: string = ""
    group_instance_id: string | None = field()
    error_code: int16 = 0


class LeaveGroupResponse(Response, api=13, versions="0-5", flexible="4+"):
    throttle_time_ms: int32 = field("1+")
    error_code: int16 = 0
    members: list[MemberResponse] = field("3+")
