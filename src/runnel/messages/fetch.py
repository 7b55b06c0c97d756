"""Fetch."""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int8, int16, int32, int64, records_, string, uuid


class ReplicaState(Struct):
    replica_id: int32 = -1
    replica_epoch: int64 = -1


class FetchPartition(Struct):
    partition: int32 = 0
    current_leader_epoch: int32 = field("9+", default=-1)
    fetch_offset: int64 = 0
    last_fetched_epoch: int32 = field("12+", default=-1)
    log_start_offset: int64 = field("5+", default=-1)
    partition_max_bytes: int32 = 0
    replica_directory_id: uuid = field("17+", tag=0)
    high_watermark: int64 = field("18+", default=0x7FFFFFFFFFFFFFFF, tag=1)


class FetchTopic(Struct):
    topic: string = field("0-12")
    topic_id: uuid = field("13+")
    partitions: list[FetchPartition] = field()


class ForgottenTopic(Struct):
    topic: string = field("7-12")
    topic_id: uuid = field("13+")
    partitions: list[int32] = field()


class FetchRequest(Request, api=1, versions="4-18", flexible="12+"):
    cluster_id: string | None = field("12+", default=None, tag=0)
    replica_id: int32 = field("0-14", default=-1)
    replica_state: ReplicaState | None = field("15+", tag=1)
    max_wait_ms: int32 = 0
    min_bytes: int32 = 0
    max_bytes: int32 = 0x7FFFFFFF
    isolation_level: int8 = 0
    session_id: int32 = field("7+")
    session_epoch: int32 = field("7+", default=-1)
    topics: list[FetchTopic] = field()
    forgotten_topics_data: list[ForgottenTopic] = field("7+")
    rack_id: string = field("11+")


class EpochEndOffset(Struct):
    epoch: int32 = -1
    end_offset: int64 = -1


class LeaderIdAndEpoch(Struct):
    leader_id: int32 = -1
    leader_epoch: int32 = -1


class SnapshotId(Struct):
    end_offset: int64 = -1
    epoch: int32 = -1


class AbortedTransaction(Struct):
    producer_id: int64 = 0
    first_offset: int64 = 0


class PartitionData(Struct):
    partition_index: int32 = 0
    error_code: int16 = 0
    high_watermark: int64 = 0
    last_stable_offset: int64 = -1
    log_start_offset: int64 = field("5+", default=-1)
    diverging_epoch: EpochEndOffset | None = field("12+", tag=0)
    current_leader: LeaderIdAndEpoch | None = field("12+", tag=1)
    snapshot_id: SnapshotId | None = field("12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = field()
    preferred_read_replica: int32 = field("11+", default=-1)
    records: records_ | None = field()


class FetchableTopicResponse(Struct):
    topic: string = field("0-12")
    topic_id: uuid = field("13+")
    partitions: list[PartitionData] = field()


class NodeEndpoint(Struct):
    node_id: int32 = 0
    host: string = ""
    port: int32 = 0
    rack: string | None = None


class FetchResponse(Response, api=1, versions="4-18", flexible="12+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = field("7+")
    session_id: int32 = field("7+")
    responses: list[FetchableTopicResponse] = field()
    node_endpoints: list[NodeEndpoint] = field("16+", tag=0)
