"""TxnOffsetCommit: commit offsets as part of a transaction.

v2 leader epoch · v3 flexible, member and generation · v5 adds the group implicitly (KIP-890)
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int16, int32, int64, string


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: int32 = 0
    committed_offset: int64 = 0
    committed_leader_epoch: int32 = field("2+", default=-1)
    committed_metadata: string | None = field()


class TxnOffsetCommitRequestTopic(Struct):
    name: string = ""
    partitions: list[TxnOffsetCommitRequestPartition] = field()


class TxnOffsetCommitRequest(Request, api=28, versions="0-5", flexible="3+"):
    transactional_id: string = ""
    group_id: string = ""
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    generation_id: int32 = field("3+", default=-1)
    member_id: string = field("3+")
    group_instance_id: string | None = field("3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = field()


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: int32 = 0
    error_code: int16 = 0


class TxnOffsetCommitResponseTopic(Struct):
    name: string = ""
    partitions: list[TxnOffsetCommitResponsePartition] = field()


class TxnOffsetCommitResponse(Response, api=28, versions="0-5", flexible="3+"):
    throttle_time_ms: int32 = 0
    topics: list[TxnOffsetCommitResponseTopic] = field()
