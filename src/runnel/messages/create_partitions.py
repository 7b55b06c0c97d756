"""CreatePartitions: add partitions to topics.

v2 flexible
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, boolean, field, int16, int32, string


class CreatePartitionsAssignment(Struct):
    broker_ids: list[int32] = field()


class CreatePartitionsTopic(Struct):
    name: string = ""
    count: int32 = 0  # the new total
    # of the new partitions only; null for automatic placement
    assignments: list[CreatePartitionsAssignment] | None = field()


class CreatePartitionsRequest(Request, api=37, versions="0-3", flexible="2+"):
    topics: list[CreatePartitionsTopic] = field()
    timeout_ms: int32 = 0
    validate_only: boolean = False


class CreatePartitionsTopicResult(Struct):
    name: string = ""
    error_code: int16 = 0
    error_message: string | None = None


class CreatePartitionsResponse(Response, api=37, versions="0-3", flexible="2+"):
    throttle_time_ms: int32 = 0
    results: list[CreatePartitionsTopicResult] = field()
