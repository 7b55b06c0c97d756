"""ElectLeaders: trigger a preferred or unclean leader election.

v1 kind of election · v2 flexible
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int8, int16, int32, string


class TopicPartitions(Struct):
    topic: string = ""
    partitions: list[int32] = field()


class ElectLeadersRequest(Request, api=43, versions="0-2", flexible="2+"):
    election_type: int8 = field("1+")  # 0 preferred, 1 unclean
    topic_partitions: list[TopicPartitions] | None = field()  # null for all
    timeout_ms: int32 = 60000


class PartitionResult(Struct):
    partition_id: int32 = 0
    error_code: int16 = 0
    error_message: string | None = field()


class ReplicaElectionResult(Struct):
    topic: string = ""
    partition_result: list[PartitionResult] = field()


class ElectLeadersResponse(Response, api=43, versions="0-2", flexible="2+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = field("1+")
    replica_election_results: list[ReplicaElectionResult] = field()
