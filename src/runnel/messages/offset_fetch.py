"""OffsetFetch: the committed offsets of groups.

v2 all topics of a group · v5 leader epoch · v6 flexible · v7 require stable · v8 batched over
groups · v9 consumer groups (KIP-848) · v10 topic ids
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, boolean, field, int16, int32, int64, string, uuid


class OffsetFetchRequestTopic(Struct):
    name: string = ""
    partition_indexes: list[int32] = field()


class OffsetFetchRequestTopics(Struct):
    name: string = field("8-9")
    topic_id: uuid = field("10+")
    partition_indexes: list[int32] = field()


class OffsetFetchRequestGroup(Struct):
    group_id: string = ""
    member_id: string | None = field("9+", default=None)
    member_epoch: int32 = field("9+", default=-1)
    topics: list[OffsetFetchRequestTopics] | None = field()  # null for all


class OffsetFetchRequest(Request, api=9, versions="1-10", flexible="6+"):
    group_id: string = field("0-7")
    topics: list[OffsetFetchRequestTopic] | None = field("0-7", nullable="2-7")  # null for all
    groups: list[OffsetFetchRequestGroup] = field("8+")
    require_stable: boolean = field("7+")  # do not show what an open transaction may change


class OffsetFetchResponsePartition(Struct):
    partition_index: int32 = 0
    committed_offset: int64 = 0  # -1 if there is none
    committed_leader_epoch: int32 = field("5-7", default=-1)
    metadata: string | None = field()
    error_code: int16 = 0


class OffsetFetchResponseTopic(Struct):
    name: string = ""
    partitions: list[OffsetFetchResponsePartition] = field()


class OffsetFetchResponsePartitions(Struct):
    partition_index: int32 = 0
    committed_offset: int64 = 0  # -1 if there is none
    committed_leader_epoch: int32 = -1
    metadata: string | None = field()
    error_code: int16 = 0


class OffsetFetchResponseTopics(Struct):
    name: string = field("8-9")
    topic_id: uuid = field("10+")
    partitions: list[OffsetFetchResponsePartitions] = field()


class OffsetFetchResponseGroup(Struct):
    group_id: string = ""
    topics: list[OffsetFetchResponseTopics] = field()
    error_code: int16 = 0


class OffsetFetchResponse(Response, api=9, versions="1-10", flexible="6+"):
    throttle_time_ms: int32 = field("3+")
    topics: list[OffsetFetchResponseTopic] = field("0-7")
    error_code: int16 = field("2-7")
    groups: list[OffsetFetchResponseGroup] = field("8+")
