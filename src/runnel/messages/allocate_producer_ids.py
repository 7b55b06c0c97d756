"""AllocateProducerIds: a broker takes a block of producer ids."""

from __future__ import annotations

from runnel.wire import Request, Response, int16, int32, int64


class AllocateProducerIdsRequest(Request, api=67, versions="0", flexible="0+"):
    broker_id: int32 = 0
    broker_epoch: int64 = -1


class AllocateProducerIdsResponse(Response, api=67, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    producer_id_start: int64 = 0
    producer_id_len: int32 = 0
