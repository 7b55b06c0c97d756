"""Envelope: a broker forwards the request of a client to the controller."""

from __future__ import annotations

from runnel.wire import Request, Response, bytes_, field, int16


class EnvelopeRequest(Request, api=58, versions="0", flexible="0+"):
    request_data: bytes_ = field()  # header and body
    request_principal: bytes_ | None = field()
    client_host_address: bytes_ = field()  # 4 or 16 bytes


class EnvelopeResponse(Response, api=58, versions="0", flexible="0+"):
    response_data: bytes_ | None = None
    error_code: int16 = 0
