"""ExpireDelegationToken: change the expiry of a delegation token.

v2 flexible
"""

from __future__ import annotations

from runnel.wire import Request, Response, bytes_, field, int16, int32, int64


class ExpireDelegationTokenRequest(Request, api=40, versions="1-2", flexible="2+"):
    hmac: bytes_ = field()
    expiry_time_period_ms: int64 = 0


class ExpireDelegationTokenResponse(Response, api=40, versions="1-2", flexible="2+"):
    error_code: int16 = 0
    expiry_timestamp_ms: int64 = 0
    throttle_time_ms: int32 = 0
