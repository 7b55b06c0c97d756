"""ShareFetch: acquire records from a share group, and acknowledge earlier ones (KIP-932).

v2 acquire mode, renewal of locks
"""

from __future__ import annotations

from runnel.wire import (
    Request,
    Response,
    Struct,
    boolean,
    field,
    int8,
    int16,
    int32,
    int64,
    records_,
    string,
    uuid,
)


class AcknowledgementBatch(Struct):
    first_offset: int64 = 0
    last_offset: int64 = 0
    # 0 gap, 1 accept, 2 release, 3 reject, 4 renew; one for all or one for each
    acknowledge_types: list[int8] = field()


class FetchPartition(Struct):
    partition_index: int32 = 0
    acknowledgement_batches: list[AcknowledgementBatch] = field()


class FetchTopic(Struct):
    topic_id: uuid = field()
    partitions: list[FetchPartition] = field()


class ForgottenTopic(Struct):
    topic_id: uuid = field()
    partitions: list[int32] = field()


class ShareFetchRequest(Request, api=78, versions="1-2", flexible="0+"):
    group_id: string | None = None
    member_id: string | None = field()
    share_session_epoch: int32 = 0  # 0 begins a session, -1 ends it
    max_wait_ms: int32 = 0
    min_bytes: int32 = 0
    max_bytes: int32 = 0x7FFFFFFF
    max_records: int32 = 0
    batch_size: int32 = 0  # how many records to acquire together
    share_acquire_mode: int8 = field("2+")
    is_renew_ack: boolean = field("2+")
    topics: list[FetchTopic] = field()
    forgotten_topics_data: list[ForgottenTopic] = field()


class LeaderIdAndEpoch(Struct):
    leader_id: int32 = 0
    leader_epoch: int32 = 0


class AcquiredRecords(Struct):
    first_offset: int64 = 0
    last_offset: int64 = 0
    delivery_count: int16 = 0  # how often they were handed out


class PartitionData(Struct):
    partition_index: int32 = 0
    error_code: int16 = 0
    error_message: string | None = None
    acknowledge_error_code: int16 = 0
    acknowledge_error_message: string | None = None
    current_leader: LeaderIdAndEpoch = field()
    records: records_ = field()
    acquired_records: list[AcquiredRecords] = field()


class ShareFetchableTopicResponse(Struct):
    topic_id: uuid = field()
    partitions: list[PartitionData] = field()


class NodeEndpoint(Struct):
    node_id: int32 = 0
    host: string = ""
    port: int32 = 0
    rack: string | None = None


class ShareFetchResponse(Response, api=78, versions="1-2", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = None
    acquisition_lock_timeout_ms: int32 = 0
    responses: list[ShareFetchableTopicResponse] = field()
    node_endpoints: list[NodeEndpoint] = field()
