"""Fetch: read record batches from partitions, optionally as a long poll.

v5 log start offset · v7 fetch sessions (KIP-227) · v9 leader epoch · v11 rack · v12 flexible,
diverging epoch · v13 topic ids · v15 replica state · v16 current leader · v17 replica
directory · v18 replica's high watermark
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int8, int16, int32, int64, records_, string, uuid


class ReplicaState(Struct):
    replica_id: int32 = -1
    replica_epoch: int64 = -1


class FetchPartition(Struct):
    partition: int32 = 0
    # fences clients with stale metadata
    current_leader_epoch: int32 = field("9+", default=-1)
    fetch_offset: int64 = 0
    last_fetched_epoch: int32 = field("12+", default=-1)  # detects log divergence
    log_start_offset: int64 = field("5+", default=-1)  # followers only
    partition_max_bytes: int32 = 0
    replica_directory_id: uuid = field("17+", tag=0)
    high_watermark: int64 = field("18+", default=0x7FFFFFFFFFFFFFFF, tag=1)  # as known to the follower


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
    replica_id: int32 = field("0-14", default=-1)  # -1 for consumers
    replica_state: ReplicaState | None = field("15+", tag=1)
    max_wait_ms: int32 = 0
    min_bytes: int32 = 0
    max_bytes: int32 = 0x7FFFFFFF
    isolation_level: int8 = 0  # 1 stops at the first open transaction
    session_id: int32 = field("7+")  # 0 begins a session, or none with epoch -1
    session_epoch: int32 = field("7+", default=-1)
    topics: list[FetchTopic] = field()
    forgotten_topics_data: list[ForgottenTopic] = field("7+")  # no longer part of the session
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
    last_stable_offset: int64 = -1  # below it no transaction is open
    log_start_offset: int64 = field("5+", default=-1)
    diverging_epoch: EpochEndOffset | None = field("12+", tag=0)  # the follower must truncate to here
    current_leader: LeaderIdAndEpoch | None = field("12+", tag=1)  # with NOT_LEADER_OR_FOLLOWER
    snapshot_id: SnapshotId | None = field("12+", tag=2)  # the log begins later: fetch this snapshot instead
    aborted_transactions: list[AbortedTransaction] | None = field()  # in the order of their first offsets
    preferred_read_replica: int32 = field("11+", default=-1)  # read there instead; -1 for here
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
