"""ControllerRegistration: a controller announces its listeners and supported features."""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, boolean, field, int16, int32, string, uint16, uuid


class Listener(Struct):
    name: string = ""
    host: string = ""
    port: uint16 = 0
    security_protocol: int16 = 0


class Feature(Struct):
    name: string = ""
    min_supported_version: int16 = 0
    max_supported_version: int16 = 0


class ControllerRegistrationRequest(Request, api=70, versions="0", flexible="0+"):
    controller_id: int32 = 0
    incarnation_id: uuid = field()
    zk_migration_ready: boolean = False
    listeners: list[Listener] = field()
    features: list[Feature] = field()


class ControllerRegistrationResponse(Response, api=70, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = field()
