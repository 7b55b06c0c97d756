"""AlterPartitionReassignments: reassign partitions to other brokers, or cancel a reassignment.

v1 may disallow changes of the replication factor
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, boolean, field, int16, int32, string


class ReassignablePartition(Struct):
    partition_index: int32 = 0
    replicas: list[int32] | None = field(default=None)  # null calls the move off


class ReassignableTopic(Struct):
    name: string = ""
    partitions: list[ReassignablePartition] = field()


class AlterPartitionReassignmentsRequest(Request, api=45, versions="0-1", flexible="0+"):
    timeout_ms: int32 = 60000
    allow_replication_factor_change: boolean = field("1+", default=True)
    topics: list[ReassignableTopic] = field()


class ReassignablePartitionResponse(Struct):
    partition_index: int32 = 0
    error_code: int16 = 0
    error_message: string | None = field()


class ReassignableTopicResponse(Struct):
    name: string = ""
    partitions: list[ReassignablePartitionResponse] = field()


class AlterPartitionReassignmentsResponse(Response, api=45, versions="0-1", flexible="0+"):
    throttle_time_ms: int32 = 0
    allow_replication_factor_change: boolean = field("1+", default=True)
    error_code: int16 = 0
    error_message: string | None = field()
    responses: list[ReassignableTopicResponse] = field()
