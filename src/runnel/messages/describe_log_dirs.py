"""DescribeLogDirs: the log directories of the broker and the size of each replica.

v2 flexible · v3 top-level error · v4 size of the volume · v5 directories cordoned for new
replicas
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, boolean, field, int16, int32, int64, string


class DescribableLogDirTopic(Struct):
    topic: string = ""
    partitions: list[int32] = field()


class DescribeLogDirsRequest(Request, api=35, versions="1-5", flexible="2+"):
    topics: list[DescribableLogDirTopic] | None = field()  # null for all


class DescribeLogDirsPartition(Struct):
    partition_index: int32 = 0
    partition_size: int64 = 0
    offset_lag: int64 = 0  # how far the replica is behind the high watermark, or a move behind its source
    is_future_key: boolean = False  # a move under way


class DescribeLogDirsTopic(Struct):
    name: string = ""
    partitions: list[DescribeLogDirsPartition] = field()


class DescribeLogDirsResult(Struct):
    error_code: int16 = 0
    log_dir: string = ""
    topics: list[DescribeLogDirsTopic] = field()
    total_bytes: int64 = field("4+", default=-1)
    usable_bytes: int64 = field("4+", default=-1)
    is_cordoned: boolean = field("5+")


class DescribeLogDirsResponse(Response, api=35, versions="1-5", flexible="2+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = field("3+")
    results: list[DescribeLogDirsResult] = field()
