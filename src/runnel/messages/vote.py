"""Vote: ask a voter of the metadata quorum for its vote.

v1 directory ids, the voter that is asked, the leader's address · v2 pre-vote (KIP-996)
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, boolean, field, int16, int32, int64, string, uint16, uuid


class PartitionData(Struct):
    partition_index: int32 = 0
    replica_epoch: int32 = 0  # of the candidate: the one it would lead, or in a pre-vote its current one
    replica_id: int32 = 0
    replica_directory_id: uuid = field("1+")
    voter_directory_id: uuid = field("1+")
    last_offset_epoch: int32 = 0
    last_offset: int64 = 0  # the log end offset of the candidate
    pre_vote: boolean = field("2+")


class TopicData(Struct):
    topic_name: string = ""
    partitions: list[PartitionData] = field()


class VoteRequest(Request, api=52, versions="0-2", flexible="0+"):
    cluster_id: string | None = None
    voter_id: int32 = field("1+", default=-1)
    topics: list[TopicData] = field()


class AnsweredPartitionData(Struct):
    partition_index: int32 = 0
    error_code: int16 = 0
    leader_id: int32 = 0
    leader_epoch: int32 = 0
    vote_granted: boolean = False


class AnsweredTopicData(Struct):
    topic_name: string = ""
    partitions: list[AnsweredPartitionData] = field()


class NodeEndpoint(Struct):
    node_id: int32 = 0
    host: string = ""
    port: uint16 = 0


class VoteResponse(Response, api=52, versions="0-2", flexible="0+"):
    error_code: int16 = 0
    topics: list[AnsweredTopicData] = field()
    node_endpoints: list[NodeEndpoint] = field("1+", tag=0)
