"""ReadShareGroupState: the delivery state of a share group's partitions; between brokers only."""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int8, int16, int32, int64, string, uuid


class PartitionData(Struct):
    partition: int32 = 0
    leader_epoch: int32 = 0


class ReadStateData(Struct):
    topic_id: uuid = field()
    partitions: list[PartitionData] = field()


class ReadShareGroupStateRequest(Request, api=84, versions="0", flexible="0+"):
    group_id: string = ""
    topics: list[ReadStateData] = field()


class StateBatch(Struct):
    first_offset: int64 = 0
    last_offset: int64 = 0
    delivery_state: int8 = 0  # 0 available, 2 acknowledged, 4 archived
    delivery_count: int16 = 0


class PartitionResult(Struct):
    partition: int32 = 0
    error_code: int16 = 0
    error_message: string | None = None
    state_epoch: int32 = 0
    start_offset: int64 = 0
    state_batches: list[StateBatch] = field()


class ReadStateResult(Struct):
    topic_id: uuid = field()
    partitions: list[PartitionResult] = field()


class ReadShareGroupStateResponse(Response, api=84, versions="0", flexible="0+"):
    results: list[ReadStateResult] = field()
