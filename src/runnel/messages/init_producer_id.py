"""InitProducerId: allocate a producer id, and fence earlier producers of a transactional id.

v2 flexible · v3 current producer id and epoch · v6 two-phase commit, not yet stable upstream
"""

from __future__ import annotations

from runnel.wire import Request, Response, boolean, field, int16, int32, int64, string


class InitProducerIdRequest(Request, api=22, versions="0-6", flexible="2+"):
    transactional_id: string | None = field()  # null: idempotent only
    transaction_timeout_ms: int32 = 0
    producer_id: int64 = field("3+", default=-1)
    producer_epoch: int16 = field("3+", default=-1)  # with the id: only bump it if it is still current
    enable_2pc: boolean = field("6+")
    keep_prepared_txn: boolean = field("6+")


class InitProducerIdResponse(Response, api=22, versions="0-6", flexible="2+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    producer_id: int64 = -1
    producer_epoch: int16 = 0
    ongoing_txn_producer_id: int64 = field("6+", default=-1)
    ongoing_txn_producer_epoch: int16 = field("6+", default=-1)
