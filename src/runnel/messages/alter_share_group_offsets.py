"""AlterShareGroupOffsets: change the start offsets of a share group."""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int16, int32, int64, string, uuid


class AlterShareGroupOffsetsRequestPartition(Struct):
    partition_index: int32 = 0
    start_offset: int64 = 0


class AlterShareGroupOffsetsRequestTopic(Struct):
    topic_name: string = ""
    partitions: list[AlterShareGroupOffsetsRequestPartition] = field()


class AlterShareGroupOffsetsRequest(Request, api=91, versions="0", flexible="0+"):
    group_id: string = ""
    topics: list[AlterShareGroupOffsetsRequestTopic] = field()


class AlterShareGroupOffsetsResponsePartition(Struct):
    partition_index: int32 = 0
    error_code: int16 = 0
    error_message: string | None = None


class AlterShareGroupOffsetsResponseTopic(Struct):
    topic_name: string = ""
    topic_id: uuid = field()
    partitions: list[AlterShareGroupOffsetsResponsePartition] = field()


class AlterShareGroupOffsetsResponse(Response, api=91, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = None
    responses: list[AlterShareGroupOffsetsResponseTopic] = field()
