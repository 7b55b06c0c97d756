"""SaslHandshake: choose how to authenticate. After v0 raw tokens follow, after v1 SaslAuthenticate."""

from __future__ import annotations

from runnel.wire import Request, Response, field, int16, string


class SaslHandshakeRequest(Request, api=17, versions="0-1"):
    mechanism: string = ""


class SaslHandshakeResponse(Response, api=17, versions="0-1"):
    error_code: int16 = 0
    mechanisms: list[string] = field()
