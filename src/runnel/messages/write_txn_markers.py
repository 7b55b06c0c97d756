"""WriteTxnMarkers: write the end of a transaction to partition leaders.

v1 flexible · v2 version of the transaction protocol
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, boolean, field, int8, int16, int32, int64, string


class WritableTxnMarkerTopic(Struct):
    name: string = ""
    partition_indexes: list[int32] = field()


class WritableTxnMarker(Struct):
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    transaction_result: boolean = False  # true committed, false aborted
    topics: list[WritableTxnMarkerTopic] = field()
    coordinator_epoch: int32 = 0
    transaction_version: int8 = field("2+")


class WriteTxnMarkersRequest(Request, api=27, versions="1-2", flexible="1+"):
    markers: list[WritableTxnMarker] = field()


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: int32 = 0
    error_code: int16 = 0


class WritableTxnMarkerTopicResult(Struct):
    name: string = ""
    partitions: list[WritableTxnMarkerPartitionResult] = field()


class WritableTxnMarkerResult(Struct):
    producer_id: int64 = 0
    topics: list[WritableTxnMarkerTopicResult] = field()


class WriteTxnMarkersResponse(Response, api=27, versions="1-2", flexible="1+"):
    markers: list[WritableTxnMarkerResult] = field()
