"""SaslAuthenticate: one step of a SASL exchange.

v1 session lifetime · v2 flexible
"""

from __future__ import annotations

from runnel.wire import Request, Response, bytes_, field, int16, int64, string


class SaslAuthenticateRequest(Request, api=36, versions="0-2", flexible="2+"):
    auth_bytes: bytes_ = field()


class SaslAuthenticateResponse(Response, api=36, versions="0-2", flexible="2+"):
    error_code: int16 = 0
    error_message: string | None = field()
    auth_bytes: bytes_ = field()
    session_lifetime_ms: int64 = field("1+")  # authenticate again before; 0 for never
