"""ListOffsets: look up offsets by timestamp, or the earliest or latest.

v2 isolation level · v4 leader epoch · v6 flexible · v7 the record with the largest timestamp · v8
first local offset of a tiered log · v9 last tiered offset · v10 timeout · v11 first offset not yet
tiered
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int8, int16, int32, int64, string


class ListOffsetsPartition(Struct):
    partition_index: int32 = 0
    current_leader_epoch: int32 = field("4+", default=-1)
    timestamp: int64 = 0  # -1 latest, -2 earliest, -3 largest timestamp, -4 earliest local, -5 latest tiered


class ListOffsetsTopic(Struct):
    name: string = ""
    partitions: list[ListOffsetsPartition] = field()


class ListOffsetsRequest(Request, api=2, versions="1-11", flexible="6+"):
    replica_id: int32 = 0  # -1 for consumers
    isolation_level: int8 = field("2+")  # 1: the latest is the first open transaction
    topics: list[ListOffsetsTopic] = field()
    timeout_ms: int32 = field("10+")  # for lookups in tiered storage


class ListOffsetsPartitionResponse(Struct):
    partition_index: int32 = 0
    error_code: int16 = 0
    timestamp: int64 = -1
    offset: int64 = -1
    leader_epoch: int32 = field("4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    name: string = ""
    partitions: list[ListOffsetsPartitionResponse] = field()


class ListOffsetsResponse(Response, api=2, versions="1-11", flexible="6+"):
    throttle_time_ms: int32 = field("2+")
    topics: list[ListOffsetsTopicResponse] = field()
