"""FetchSnapshot: a page of bytes of a snapshot of the metadata log.

v1 directory id, the leader's address
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int16, int32, int64, records_, string, uint16, uuid


class SnapshotId(Struct):
    end_offset: int64 = 0
    epoch: int32 = 0


class PartitionSnapshot(Struct):
    partition: int32 = 0
    current_leader_epoch: int32 = 0
    snapshot_id: SnapshotId = field()
    position: int64 = 0
    replica_directory_id: uuid = field("1+", tag=0)


class TopicSnapshot(Struct):
    name: string = ""
    partitions: list[PartitionSnapshot] = field()


class FetchSnapshotRequest(Request, api=59, versions="0-1", flexible="0+"):
    cluster_id: string | None = field(default=None, tag=0)
    replica_id: int32 = -1
    max_bytes: int32 = 0x7FFFFFFF
    topics: list[TopicSnapshot] = field()


class LeaderIdAndEpoch(Struct):
    leader_id: int32 = 0
    leader_epoch: int32 = 0


class AnsweredPartitionSnapshot(Struct):
    index: int32 = 0
    error_code: int16 = 0
    snapshot_id: SnapshotId = field()
    current_leader: LeaderIdAndEpoch | None = field(tag=0)
    size: int64 = 0
    position: int64 = 0
    unaligned_records: records_ = field()  # a page may begin and end within a batch


class AnsweredTopicSnapshot(Struct):
    name: string = ""
    partitions: list[AnsweredPartitionSnapshot] = field()


class NodeEndpoint(Struct):
    node_id: int32 = 0
    host: string = ""
    port: uint16 = 0


class FetchSnapshotResponse(Response, api=59, versions="0-1", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    topics: list[AnsweredTopicSnapshot] = field()
    node_endpoints: list[NodeEndpoint] = field("1+", tag=0)
