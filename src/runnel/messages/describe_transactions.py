"""DescribeTransactions: the state of transactions."""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int16, int32, int64, string


class DescribeTransactionsRequest(Request, api=65, versions="0", flexible="0+"):
    transactional_ids: list[string] = field()


class TopicData(Struct):
    topic: string = ""
    partitions: list[int32] = field()


class TransactionState(Struct):
    error_code: int16 = 0
    transactional_id: string = ""
    transaction_state: string = ""
    transaction_timeout_ms: int32 = 0
    transaction_start_time_ms: int64 = 0
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    topics: list[TopicData] = field()


class DescribeTransactionsResponse(Response, api=65, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    transaction_states: list[TransactionState] = field()
