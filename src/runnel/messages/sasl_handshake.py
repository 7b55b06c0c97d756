"""SaslHandshake: choose a SASL mechanism. v0 is followed by raw tokens, v1 by SaslAuthenticate."""

from __future__ import annotations

from runnel.wire import Request, Response, field, int16, string


class SaslHandshakeRequest(Request, api=17, versions="0-1"):
    mechanism: string = ""


class SaslHandshakeResponse(Response, api=17, versions="0-1"):
    error_code: int16 = 0
    mechanisms: list[string] = field()
