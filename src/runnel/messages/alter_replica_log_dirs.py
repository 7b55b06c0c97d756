"""AlterReplicaLogDirs: move replicas to another directory of the broker.

v2 flexible
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int16, int32, string


class AlterReplicaLogDirTopic(Struct):
    name: string = ""
    partitions: list[int32] = field()


class AlterReplicaLogDir(Struct):
    path: string = ""
    topics: list[AlterReplicaLogDirTopic] = field()


class AlterReplicaLogDirsRequest(Request, api=34, versions="1-2", flexible="2+"):
    dirs: list[AlterReplicaLogDir] = field()


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: int32 = 0
    error_code: int16 = 0


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: string = ""
    partitions: list[AlterReplicaLogDirPartitionResult] = field()


class AlterReplicaLogDirsResponse(Response, api=34, versions="1-2", flexible="2+"):
    throttle_time_ms: int32 = 0
    results: list[AlterReplicaLogDirTopicResult] = field()
