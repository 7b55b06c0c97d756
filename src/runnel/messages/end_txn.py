"""EndTxn: commit or abort a transaction.

v3 flexible · v5 returns the producer id and epoch of the next transaction (KIP-890)
"""

from __future__ import annotations

from runnel.wire import Request, Response, boolean, field, int16, int32, int64, string


class EndTxnRequest(Request, api=26, versions="0-5", flexible="3+"):
    transactional_id: string = ""
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    committed: boolean = False  # false aborts


class EndTxnResponse(Response, api=26, versions="0-5", flexible="3+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    producer_id: int64 = field("5+", default=-1)
    producer_epoch: int16 = field("5+", default=-1)
