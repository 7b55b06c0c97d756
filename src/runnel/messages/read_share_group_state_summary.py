"""ReadShareGroupStateSummary: the start offsets of a share group's partitions; between brokers only.

v1 delivery complete count
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int16, int32, int64, string, uuid


class PartitionData(Struct):
    partition: int32 = 0
    leader_epoch: int32 = 0


class ReadStateSummaryData(Struct):
    topic_id: uuid = field()
    partitions: list[PartitionData] = field()


class ReadShareGroupStateSummaryRequest(Request, api=87, versions="0-1", flexible="0+"):
    group_id: string = ""
    topics: list[ReadStateSummaryData] = field()


class PartitionResult(Struct):
    partition: int32 = 0
    error_code: int16 = 0
    error_message: string | None = None
    state_epoch: int32 = 0
    leader_epoch: int32 = 0
    start_offset: int64 = 0
    delivery_complete_count: int32 = field("1+", default=-1)


class ReadStateSummaryResult(Struct):
    topic_id: uuid = field()
    partitions: list[PartitionResult] = field()


class ReadShareGroupStateSummaryResponse(Response, api=87, versions="0-1", flexible="0+"):
    results: list[ReadStateSummaryResult] = field()
