"""RemoveRaftVoter: remove a voter from the metadata quorum."""

from __future__ import annotations

from runnel.wire import Request, Response, field, int16, int32, string, uuid


class RemoveRaftVoterRequest(Request, api=81, versions="0", flexible="0+"):
    cluster_id: string | None = field()
    voter_id: int32 = 0
    voter_directory_id: uuid = field()


class RemoveRaftVoterResponse(Response, api=81, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = field()
