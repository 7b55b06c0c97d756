"""JoinGroup: join a classic group and wait for the rebalance.

v1 rebalance timeout · v4 MEMBER_ID_REQUIRED on the first join · v5 static members · v6 flexible · v7
protocol type · v8 reason · v9 a static leader may skip the assignment
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, boolean, bytes_, field, int16, int32, string


class JoinGroupRequestProtocol(Struct):
    name: string = ""
    metadata: bytes_ = field()  # opaque to the broker


class JoinGroupRequest(Request, api=11, versions="0-9", flexible="6+"):
    group_id: string = ""
    session_timeout_ms: int32 = 0
    rebalance_timeout_ms: int32 = field("1+", default=-1)  # -1: the session timeout
    member_id: string = ""  # empty at first
    group_instance_id: string | None = field("5+", default=None)
    protocol_type: string = ""  # such as "consumer" or "connect"
    protocols: list[JoinGroupRequestProtocol] = field()
    reason: string | None = field("8+", default=None)


class JoinGroupResponseMember(Struct):
    member_id: string = ""
    group_instance_id: string | None = field("5+", default=None)
    metadata: bytes_ = field()


class JoinGroupResponse(Response, api=11, versions="0-9", flexible="6+"):
    throttle_time_ms: int32 = field("2+")
    error_code: int16 = 0
    generation_id: int32 = -1
    protocol_type: string | None = field("7+", default=None)
    protocol_name: string | None = field(nullable="7+")
    leader: string = ""
    skip_assignment: boolean = field("9+")
    member_id: string = ""
    members: list[JoinGroupResponseMember] = field()  # for the leader only
