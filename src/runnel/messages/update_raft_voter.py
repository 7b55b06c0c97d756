"""UpdateRaftVoter: a voter reports its listeners and supported kraft.version to the leader."""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int16, int32, string, uint16, uuid


class Listener(Struct):
    name: string = ""
    host: string = ""
    port: uint16 = 0


class KRaftVersionFeature(Struct):
    min_supported_version: int16 = 0
    max_supported_version: int16 = 0


class UpdateRaftVoterRequest(Request, api=82, versions="0", flexible="0+"):
    cluster_id: string | None = field()
    current_leader_epoch: int32 = 0
    voter_id: int32 = 0
    voter_directory_id: uuid = field()
    listeners: list[Listener] = field()
    kraft_version_feature: KRaftVersionFeature = field()


class CurrentLeader(Struct):
    leader_id: int32 = -1
    leader_epoch: int32 = -1
    host: string = ""
    port: int32 = 0


class UpdateRaftVoterResponse(Response, api=82, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    current_leader: CurrentLeader | None = field(tag=0)
