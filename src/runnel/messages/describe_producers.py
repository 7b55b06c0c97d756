"""DescribeProducers: the active idempotent producers of partitions."""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int16, int32, int64, string


class TopicRequest(Struct):
    name: string = ""
    partition_indexes: list[int32] = field()


class DescribeProducersRequest(Request, api=61, versions="0", flexible="0+"):
    topics: list[TopicRequest] = field()


class ProducerState(Struct):
    producer_id: int64 = 0
    producer_epoch: int32 = 0
    last_sequence: int32 = -1
    last_timestamp: int64 = -1
    coordinator_epoch: int32 = 0
    current_txn_start_offset: int64 = -1  # -1 outside of a transaction


class PartitionResponse(Struct):
    partition_index: int32 = 0
    error_code: int16 = 0
    error_message: string | None = None
    active_producers: list[ProducerState] = field()


class TopicResponse(Struct):
    name: string = ""
    partitions: list[PartitionResponse] = field()


class DescribeProducersResponse(Response, api=61, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    topics: list[TopicResponse] = field()
