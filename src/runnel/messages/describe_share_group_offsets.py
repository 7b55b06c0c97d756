"""DescribeShareGroupOffsets: the start offsets of share groups.

v1 lag
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int16, int32, int64, string, uuid


class DescribeShareGroupOffsetsRequestTopic(Struct):
    topic_name: string = ""
    partitions: list[int32] = field()


class DescribeShareGroupOffsetsRequestGroup(Struct):
    group_id: string = ""
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = field()  # null for all


class DescribeShareGroupOffsetsRequest(Request, api=90, versions="0-1", flexible="0+"):
    groups: list[DescribeShareGroupOffsetsRequestGroup] = field()


class DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: int32 = 0
    start_offset: int64 = 0
    leader_epoch: int32 = 0
    lag: int64 = field("1+", default=-1)
    error_code: int16 = 0
    error_message: string | None = None


class DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: string = ""
    topic_id: uuid = field()
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = field()


class DescribeShareGroupOffsetsResponseGroup(Struct):
    group_id: string = ""
    topics: list[DescribeShareGroupOffsetsResponseTopic] = field()
    error_code: int16 = 0
    error_message: string | None = None


class DescribeShareGroupOffsetsResponse(Response, api=90, versions="0-1", flexible="0+"):
    throttle_time_ms: int32 = 0
    groups: list[DescribeShareGroupOffsetsResponseGroup] = field()
