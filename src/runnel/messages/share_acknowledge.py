"""ShareAcknowledge: acknowledge acquired records (KIP-932).

v2 renewal of locks
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, boolean, field, int8, int16, int32, int64, string, uuid


class AcknowledgementBatch(Struct):
    first_offset: int64 = 0
    last_offset: int64 = 0
    # 0 gap, 1 accept, 2 release, 3 reject, 4 renew; one for all or one for each
    acknowledge_types: list[int8] = field()


class AcknowledgePartition(Struct):
    partition_index: int32 = 0
    acknowledgement_batches: list[AcknowledgementBatch] = field()


class AcknowledgeTopic(Struct):
    topic_id: uuid = field()
    partitions: list[AcknowledgePartition] = field()


class ShareAcknowledgeRequest(Request, api=79, versions="1-2", flexible="0+"):
    group_id: string | None = None
    member_id: string | None = field()
    share_session_epoch: int32 = 0  # 0 begins a session, -1 ends it
    is_renew_ack: boolean = field("2+")
    topics: list[AcknowledgeTopic] = field()


class LeaderIdAndEpoch(Struct):
    leader_id: int32 = 0
    leader_epoch: int32 = 0


class PartitionData(Struct):
    partition_index: int32 = 0
    error_code: int16 = 0
    error_message: string | None = None
    current_leader: LeaderIdAndEpoch = field()


class ShareAcknowledgeTopicResponse(Struct):
    topic_id: uuid = field()
    partitions: list[PartitionData] = field()


class NodeEndpoint(Struct):
    node_id: int32 = 0
    host: string = ""
    port: int32 = 0
    rack: string | None = None


class ShareAcknowledgeResponse(Response, api=79, versions="1-2", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = None
    acquisition_lock_timeout_ms: int32 = field("2+")
    responses: list[ShareAcknowledgeTopicResponse] = field()
    node_endpoints: list[NodeEndpoint] = field()
