"""ListPartitionReassignments: the ongoing reassignments."""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int16, int32, string


class ListPartitionReassignmentsTopics(Struct):
    name: string = ""
    partition_indexes: list[int32] = field()


class ListPartitionReassignmentsRequest(Request, api=46, versions="0", flexible="0+"):
    timeout_ms: int32 = 60000
    topics: list[ListPartitionReassignmentsTopics] | None = field(default=None)  # null for all


class OngoingPartitionReassignment(Struct):
    partition_index: int32 = 0
    replicas: list[int32] = field()
    adding_replicas: list[int32] = field()
    removing_replicas: list[int32] = field()


class OngoingTopicReassignment(Struct):
    name: string = ""
    partitions: list[OngoingPartitionReassignment] = field()


class ListPartitionReassignmentsResponse(Response, api=46, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = field()
    topics: list[OngoingTopicReassignment] = field()
