"""AddRaftVoter: add a voter to the metadata quorum.

v1 may be acknowledged before it is committed
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, boolean, field, int16, int32, string, uint16, uuid


class Listener(Struct):
    name: string = ""
    host: string = ""
    port: uint16 = 0


class AddRaftVoterRequest(Request, api=80, versions="0-1", flexible="0+"):
    cluster_id: string | None = field()
    timeout_ms: int32 = 0
    voter_id: int32 = 0
    voter_directory_id: uuid = field()
    listeners: list[Listener] = field()
    ack_when_committed: boolean = field("1+", default=True)


class AddRaftVoterResponse(Response, api=80, versions="0-1", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = field()
