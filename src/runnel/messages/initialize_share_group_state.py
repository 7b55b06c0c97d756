"""InitializeShareGroupState: initialize the state of a share group; between brokers only."""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int16, int32, int64, string, uuid


class PartitionData(Struct):
    partition: int32 = 0
    state_epoch: int32 = 0
    start_offset: int64 = 0


class InitializeStateData(Struct):
    topic_id: uuid = field()
    partitions: list[PartitionData] = field()


class InitializeShareGroupStateRequest(Request, api=83, versions="0", flexible="0+"):
    group_id: string = ""
    topics: list[InitializeStateData] = field()


class PartitionResult(Struct):
    partition: int32 = 0
    error_code: int16 = 0
    error_message: string | None = None


class InitializeStateResult(Struct):
    topic_id: uuid = field()
    partitions: list[PartitionResult] = field()


class InitializeShareGroupStateResponse(Response, api=83, versions="0", flexible="0+"):
    results: list[InitializeStateResult] = field()
