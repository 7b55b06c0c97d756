"""DeleteRecords: delete the records before an offset.

v2 flexible
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int16, int32, int64, string


class DeleteRecordsPartition(Struct):
    partition_index: int32 = 0
    offset: int64 = 0  # -1: all that is committed


class DeleteRecordsTopic(Struct):
    name: string = ""
    partitions: list[DeleteRecordsPartition] = field()


class DeleteRecordsRequest(Request, api=21, versions="0-2", flexible="2+"):
    topics: list[DeleteRecordsTopic] = field()
    timeout_ms: int32 = 0


class DeleteRecordsPartitionResult(Struct):
    partition_index: int32 = 0
    low_watermark: int64 = 0  # the first offset that is left
    error_code: int16 = 0


class DeleteRecordsTopicResult(Struct):
    name: string = ""
    partitions: list[DeleteRecordsPartitionResult] = field()


class DeleteRecordsResponse(Response, api=21, versions="0-2", flexible="2+"):
    throttle_time_ms: int32 = 0
    topics: list[DeleteRecordsTopicResult] = field()
