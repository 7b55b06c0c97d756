"""Produce: append record batches to partitions. With acks=0 there is no response.

v3 oldest supported · v5 log start offset · v8 record errors (KIP-467) · v9 flexible ·
v10 current leader · v12 adds partitions to transactions implicitly · v13 topic ids
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int16, int32, int64, records_, string, uuid


class PartitionProduceData(Struct):
    index: int32 = 0
    records: records_ | None = field()


class TopicProduceData(Struct):
    name: string = field("0-12")
    topic_id: uuid = field("13+")
    partition_data: list[PartitionProduceData] = field()


class ProduceRequest(Request, api=0, versions="3-13", flexible="9+"):
    transactional_id: string | None = None
    acks: int16 = 0  # 0 no response, 1 leader only, -1 all in-sync replicas
    timeout_ms: int32 = 0
    topic_data: list[TopicProduceData] = field()


class BatchIndexAndErrorMessage(Struct):
    batch_index: int32 = 0  # of the record within its batch
    batch_index_error_message: string | None = None


class LeaderIdAndEpoch(Struct):
    leader_id: int32 = -1
    leader_epoch: int32 = -1


class PartitionProduceResponse(Struct):
    index: int32 = 0
    error_code: int16 = 0
    base_offset: int64 = 0
    log_append_time_ms: int64 = -1  # -1 with CreateTime
    log_start_offset: int64 = field("5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = field("8+")
    error_message: string | None = field("8+", default=None)
    current_leader: LeaderIdAndEpoch | None = field("10+", tag=0)  # with NOT_LEADER_OR_FOLLOWER


class TopicProduceResponse(Struct):
    name: string = field("0-12")
    topic_id: uuid = field("13+")
    partition_responses: list[PartitionProduceResponse] = field()


class NodeEndpoint(Struct):
    node_id: int32 = 0
    host: string = ""
    port: int32 = 0
    rack: string | None = None


class ProduceResponse(Response, api=0, versions="3-13", flexible="9+"):
    responses: list[TopicProduceResponse] = field()
    throttle_time_ms: int32 = 0
    node_endpoints: list[NodeEndpoint] = field("10+", tag=0)
