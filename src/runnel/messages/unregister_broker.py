"""UnregisterBroker: remove a broker from the cluster."""

from __future__ import annotations

from runnel.wire import Request, Response, field, int16, int32, string


class UnregisterBrokerRequest(Request, api=64, versions="0", flexible="0+"):
    broker_id: int32 = 0


class UnregisterBrokerResponse(Response, api=64, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = field()
