"""BeginQuorumEpoch: the new leader of the metadata quorum announces itself to a voter.

v1 directory ids, the voter that is addressed, addresses of the leader
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int16, int32, string, uint16, uuid


class PartitionData(Struct):
    partition_index: int32 = 0
    voter_directory_id: uuid = field("1+")
    leader_id: int32 = 0
    leader_epoch: int32 = 0


class TopicData(Struct):
    topic_name: string = ""
    partitions: list[PartitionData] = field()


class LeaderEndpoint(Struct):
    name: string = ""
    host: string = ""
    port: uint16 = 0


class BeginQuorumEpochRequest(Request, api=53, versions="0-1", flexible="1+"):
    cluster_id: string | None = None
    voter_id: int32 = field("1+", default=-1)
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


class BeginQuorumEpochResponse(Response, api=53, versions="0-1", flexible="1+"):
    error_code: int16 = 0
    topics: list[AnsweredTopicData] = field()
    node_endpoints: list[NodeEndpoint] = field("1+", tag=0)
