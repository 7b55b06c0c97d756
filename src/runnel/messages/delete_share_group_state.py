"""DeleteShareGroupState: delete the delivery state of a share group; between brokers only."""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int16, int32, string, uuid


class PartitionData(Struct):
    partition: int32 = 0


class DeleteStateData(Struct):
    topic_id: uuid = field()
    partitions: list[PartitionData] = field()


class DeleteShareGroupStateRequest(Request, api=86, versions="0", flexible="0+"):
    group_id: string = ""
    topics: list[DeleteStateData] = field()


class PartitionResult(Struct):
    partition: int32 = 0
    error_code: int16 = 0
    error_message: string | None = None


class DeleteStateResult(Struct):
    topic_id: uuid = field()
    partitions: list[PartitionResult] = field()


class DeleteShareGroupStateResponse(Response, api=86, versions="0", flexible="0+"):
    results: list[DeleteStateResult] = field()
