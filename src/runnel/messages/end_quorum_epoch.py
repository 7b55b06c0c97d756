"""EndQuorumEpoch: the leader of the metadata quorum resigns.

v1 directory ids, addresses of the leader
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int16, int32, string, uint16, uuid


class ReplicaInfo(Struct):
    candidate_id: int32 = 0
    candidate_directory_id: uuid = field()


class PartitionData(Struct):
    partition_index: int32 = 0
    leader_id: int32 = 0
    leader_epoch: int32 = 0
    preferred_successors: list[int32] = field("0")  # the most complete log first
    preferred_candidates: list[ReplicaInfo] = field("1+")


class TopicData(Struct):
    topic_name: string = ""
    partitions: list[PartitionData] = field()


class LeaderEndpoint(Struct):
    name: string = ""
    host: string = ""
    port: uint16 = 0


class EndQuorumEpochRequest(Request, api=54, versions="0-1", flexible="1+"):
    cluster_id: string | None = None
    topics: list[TopicData] = field()
    leader_endpoints: list[LeaderEndpoint] = field("1+")


class AnsweredPartitionData(Struct):
    partition_index: int32 = 0
    error_code: int16 = 0
    leader_id: int32 = 0
    leader_epoch: int32 = 0


class AnsweredTopicData(Struct):
    topic_name: string = ""
    partitions: list[AnsweredPartitionData] = field()


class NodeEndpoint(Struct):
    node_id: int32 = 0
    host: string = ""
    port: uint16 = 0


class EndQuorumEpochResponse(Response, api=54, versions="0-1", flexible="1+"):
    error_code: int16 = 0
    topics: list[AnsweredTopicData] = field()
    node_endpoints: list[NodeEndpoint] = field("1+", tag=0)
