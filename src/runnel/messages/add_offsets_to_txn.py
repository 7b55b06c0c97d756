"""AddOffsetsToTxn: add the offsets of a consumer group to a transaction.

v3 flexible
"""

from __future__ import annotations

from runnel.wire import Request, Response, int16, int32, int64, string


class AddOffsetsToTxnRequest(Request, api=25, versions="0-4", flexible="3+"):
    transactional_id: string = ""
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    group_id: string = ""


class AddOffsetsToTxnResponse(Response, api=25, versions="0-4", flexible="3+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
