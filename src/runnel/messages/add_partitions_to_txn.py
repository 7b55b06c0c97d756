"""AddPartitionsToTxn: add partitions to a transaction.

v3 flexible · v4 batches transactions, between brokers only
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, boolean, field, int16, int32, int64, string


class AddPartitionsToTxnTopic(Struct):
    name: string = ""
    partitions: list[int32] = field()


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: string = ""
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    verify_only: boolean = False  # only verify that it was added
    topics: list[AddPartitionsToTxnTopic] = field()


class AddPartitionsToTxnRequest(Request, api=24, versions="0-5", flexible="3+"):
    transactions: list[AddPartitionsToTxnTransaction] = field("4+")
    v3_and_below_transactional_id: string = field("0-3")
    v3_and_below_producer_id: int64 = field("0-3")
    v3_and_below_producer_epoch: int16 = field("0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field("0-3")


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: int32 = 0
    partition_error_code: int16 = 0


class AddPartitionsToTxnTopicResult(Struct):
    name: string = ""
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field()


class AddPartitionsToTxnResult(Struct):
    transactional_id: string = ""
    topic_results: list[AddPartitionsToTxnTopicResult] = field()


class AddPartitionsToTxnResponse(Response, api=24, versions="0-5", flexible="3+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = field("4+")
    results_by_transaction: list[AddPartitionsToTxnResult] = field("4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field("0-3")
