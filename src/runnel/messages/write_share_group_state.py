"""WriteShareGroupState: store the delivery state of a share group's partitions; between brokers only.

v1 delivery complete count
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int8, int16, int32, int64, string, uuid


class StateBatch(Struct):
    first_offset: int64 = 0
    last_offset: int64 = 0
    delivery_state: int8 = 0  # 0 available, 2 acknowledged, 4 archived
    delivery_count: int16 = 0


class PartitionData(Struct):
    partition: int32 = 0
    state_epoch: int32 = 0
    leader_epoch: int32 = 0
    start_offset: int64 = 0
    delivery_complete_count: int32 = field("1+", default=-1)
    state_batches: list[StateBatch] = field()


class WriteStateData(Struct):
    topic_id: uuid = field()
    partitions: list[PartitionData] = field()


class WriteShareGroupStateRequest(Request, api=85, versions="0-1", flexible="0+"):
    group_id: string = ""
    topics: list[WriteStateData] = field()


class PartitionResult(Struct):
    partition: int32 = 0
    error_code: int16 = 0
    error_message: string | None = None


class WriteStateResult(Struct):
    topic_id: uuid = field()
    partitions: list[PartitionResult] = field()


class WriteShareGroupStateResponse(Response, api=85, versions="0-1", flexible="0+"):
    results: list[WriteStateResult] = field()
