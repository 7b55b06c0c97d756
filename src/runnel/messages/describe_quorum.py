"""DescribeQuorum: the leader and the replicas of the metadata quorum.

v1 times of the last fetch · v2 directory ids and listeners
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int16, int32, int64, string, uint16, uuid


class PartitionData(Struct):
    partition_index: int32 = 0


class TopicData(Struct):
    topic_name: string = ""
    partitions: list[PartitionData] = field()


class DescribeQuorumRequest(Request, api=55, versions="0-2", flexible="0+"):
    topics: list[TopicData] = field()


class ReplicaState(Struct):
    replica_id: int32 = 0
    replica_directory_id: uuid = field("2+")
    log_end_offset: int64 = 0
    last_fetch_timestamp: int64 = field("1+", default=-1)  # -1 for the leader itself
    last_caught_up_timestamp: int64 = field("1+", default=-1)


class AnsweredPartitionData(Struct):
    partition_index: int32 = 0
    error_code: int16 = 0
    error_message: string | None = field("2+")
    leader_id: int32 = 0
    leader_epoch: int32 = 0
    high_watermark: int64 = 0
    current_voters: list[ReplicaState] = field()
    observers: list[ReplicaState] = field()


class AnsweredTopicData(Struct):
    topic_name: string = ""
    partitions: list[AnsweredPartitionData] = field()


class Listener(Struct):
    name: string = ""
    host: string = ""
    port: uint16 = 0


class Node(Struct):
    node_id: int32 = 0
    listeners: list[Listener] = field()


class DescribeQuorumResponse(Response, api=55, versions="0-2", flexible="0+"):
    error_code: int16 = 0
    error_message: string | None = field("2+")
    topics: list[AnsweredTopicData] = field()
    nodes: list[Node] = field("2+")
