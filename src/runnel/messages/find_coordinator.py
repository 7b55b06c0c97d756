"""FindCoordinator: the coordinator of a group or a transactional id.

v1 transactions · v3 flexible · v4 batched · v6 share groups
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int8, int16, int32, string


class FindCoordinatorRequest(Request, api=10, versions="0-6", flexible="3+"):
    key: string = field("0-3")
    key_type: int8 = field("1+")  # 0 group, 1 transaction, 2 share group
    coordinator_keys: list[string] = field("4+")


class Coordinator(Struct):
    key: string = ""
    node_id: int32 = 0
    host: string = ""
    port: int32 = 0
    error_code: int16 = 0
    error_message: string | None = field()


class FindCoordinatorResponse(Response, api=10, versions="0-6", flexible="3+"):
    throttle_time_ms: int32 = field("1+")
    error_code: int16 = field("0-3")
    error_message: string | None = field("1-3")
    node_id: int32 = field("0-3")
    host: string = field("0-3")
    port: int32 = field("0-3")
    coordinators: list[Coordinator] = field("4+")
