"""OffsetForLeaderEpoch: the end offset of a leader epoch, for truncation after divergence.

v3 replica id · v4 flexible
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int16, int32, int64, string


class OffsetForLeaderPartition(Struct):
    partition: int32 = 0
    current_leader_epoch: int32 = -1  # fences clients with stale metadata
    leader_epoch: int32 = 0


class OffsetForLeaderTopic(Struct):
    topic: string = ""
    partitions: list[OffsetForLeaderPartition] = field()


class OffsetForLeaderEpochRequest(Request, api=23, versions="2-4", flexible="4+"):
    replica_id: int32 = field("3+", default=-2)  # -1 consumer, -2 anyone
    topics: list[OffsetForLeaderTopic] = field()


class EpochEndOffset(Struct):
    error_code: int16 = 0
    partition: int32 = 0
    leader_epoch: int32 = -1  # the largest known epoch not above the requested one
    end_offset: int64 = -1


class OffsetForLeaderTopicResult(Struct):
    topic: string = ""
    partitions: list[EpochEndOffset] = field()


class OffsetForLeaderEpochResponse(Response, api=23, versions="2-4", flexible="4+"):
    throttle_time_ms: int32 = 0
    topics: list[OffsetForLeaderTopicResult] = field()
