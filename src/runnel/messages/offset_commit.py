"""OffsetCommit: commit the offsets of a group.

v3 throttle time · v5 no retention time · v6 leader epoch · v7 static members · v8 flexible
· v9 consumer groups (KIP-848) · v10 topic ids
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int16, int32, int64, string, uuid


class OffsetCommitRequestPartition(Struct):
    partition_index: int32 = 0
    committed_offset: int64 = 0
    committed_leader_epoch: int32 = field("6+", default=-1)
    committed_metadata: string | None = field()


class OffsetCommitRequestTopic(Struct):
    name: string = field("0-9")
    topic_id: uuid = field("10+")
    partitions: list[OffsetCommitRequestPartition] = field()


class OffsetCommitRequest(Request, api=8, versions="2-10", flexible="8+"):
    group_id: string = ""
    generation_id_or_member_epoch: int32 = -1  # -1 from outside of the group
    member_id: string = ""
    group_instance_id: string | None = field("7+", default=None)
    retention_time_ms: int64 = field("2-4", default=-1)  # no longer honoured
    topics: list[OffsetCommitRequestTopic] = field()


class OffsetCommitResponsePartition(Struct):
    partition_index: int32 = 0
    error_code: int16 = 0


class OffsetCommitResponseTopic(Struct):
    name: string = field("0-9")
    topic_id: uuid = field("10+")
    partitions: list[OffsetCommitResponsePartition] = field()


class OffsetCommitResponse(Response, api=8, versions="2-10", flexible="8+"):
    throttle_time_ms: int32 = field("3+")
    topics: list[OffsetCommitResponseTopic] = field()
