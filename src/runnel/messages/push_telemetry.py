"""PushTelemetry: a client's metrics (KIP-714)."""

from __future__ import annotations

from runnel.wire import Request, Response, boolean, bytes_, field, int8, int16, int32, uuid


class PushTelemetryRequest(Request, api=72, versions="0", flexible="0+"):
    client_instance_id: uuid = field()
    subscription_id: int32 = 0
    terminating: boolean = False  # the last push of this client
    compression_type: int8 = 0
    metrics: bytes_ = field()  # OTLP, perhaps compressed


class PushTelemetryResponse(Response, api=72, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
