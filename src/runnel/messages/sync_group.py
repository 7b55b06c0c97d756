"""SyncGroup: the leader sends the assignments, each member receives its own.

v3 static members · v4 flexible · v5 protocol type and name
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, bytes_, field, int16, int32, string


class SyncGroupRequestAssignment(Struct):
    member_id: string = ""
    assignment: bytes_ = field()


class SyncGroupRequest(Request, api=14, versions="0-5", flexible="4+"):
    group_id: string = ""
    generation_id: int32 = 0
    member_id: string = ""
    group_instance_id: string | None = field("3+", default=None)
    protocol_type: string | None = field("5+", default=None)
    protocol_name: string | None = field("5+", default=None)
    assignments: list[SyncGroupRequestAssignment] = field()  # from the leader only


class SyncGroupResponse(Response, api=14, versions="0-5", flexible="4+"):
    throttle_time_ms: int32 = field("1+")
    error_code: int16 = 0
    protocol_type: string | None = field("5+", default=None)
    protocol_name: string | None = field("5+", default=None)
    assignment: bytes_ = field()
