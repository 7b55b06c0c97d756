"""GetTelemetrySubscriptions: the metrics that a client should push (KIP-714)."""

from __future__ import annotations

from runnel.wire import Request, Response, boolean, field, int8, int16, int32, string, uuid


class GetTelemetrySubscriptionsRequest(Request, api=71, versions="0", flexible="0+"):
    client_instance_id: uuid = field()


class GetTelemetrySubscriptionsResponse(Response, api=71, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    client_instance_id: uuid = field()
    subscription_id: int32 = 0
    accepted_compression_types: list[int8] = field()
    push_interval_ms: int32 = 0
    telemetry_max_bytes: int32 = 0
    delta_temporality: boolean = False
    requested_metrics: list[string] = field()
