"""AssignReplicasToDirs: a broker reports the log directories of its replicas (KIP-858)."""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int16, int32, int64, uuid


class PartitionData(Struct):
    partition_index: int32 = 0


class TopicData(Struct):
    topic_id: uuid = field()
    partitions: list[PartitionData] = field()


class DirectoryData(Struct):
    id: uuid = field()
    topics: list[TopicData] = field()


class AssignReplicasToDirsRequest(Request, api=73, versions="0", flexible="0+"):
    broker_id: int32 = 0
    broker_epoch: int64 = -1
    directories: list[DirectoryData] = field()


class PartitionResult(Struct):
    partition_index: int32 = 0
    error_code: int16 = 0


class TopicResult(Struct):
    topic_id: uuid = field()
    partitions: list[PartitionResult] = field()


class DirectoryResult(Struct):
    id: uuid = field()
    topics: list[TopicResult] = field()


class AssignReplicasToDirsResponse(Response, api=73, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    directories: list[DirectoryResult] = field()
