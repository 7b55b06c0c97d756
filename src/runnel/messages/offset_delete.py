"""OffsetDelete: delete committed offsets of topics that the group is not subscribed to."""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int16, int32, string


class OffsetDeleteRequestPartition(Struct):
    partition_index: int32 = 0


class OffsetDeleteRequestTopic(Struct):
    name: string = ""
    partitions: list[OffsetDeleteRequestPartition] = field()


class OffsetDeleteRequest(Request, api=47, versions="0"):
    group_id: string = ""
    topics: list[OffsetDeleteRequestTopic] = field()


class OffsetDeleteResponsePartition(Struct):
    partition_index: int32 = 0
    error_code: int16 = 0


class OffsetDeleteResponseTopic(Struct):
    name: string = ""
    partitions: list[OffsetDeleteResponsePartition] = field()


class OffsetDeleteResponse(Response, api=47, versions="0"):
    error_code: int16 = 0
    throttle_time_ms: int32 = 0
    topics: list[OffsetDeleteResponseTopic] = field()
