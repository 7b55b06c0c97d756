"""CreateDelegationToken: create a delegation token for an owner.

v2 flexible · v3 on behalf of another owner
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, bytes_, field, int16, int32, int64, string


class CreatableRenewers(Struct):
    principal_type: string = ""
    principal_name: string = ""


class CreateDelegationTokenRequest(Request, api=38, versions="1-3", flexible="2+"):
    owner_principal_type: string | None = field("3+")
    owner_principal_name: string | None = field("3+")
    renewers: list[CreatableRenewers] = field()
    max_lifetime_ms: int64 = 0  # -1 for the broker's default


class CreateDelegationTokenResponse(Response, api=38, versions="1-3", flexible="2+"):
    error_code: int16 = 0
    principal_type: string = ""
    principal_name: string = ""
    token_requester_principal_type: string = field("3+")
    token_requester_principal_name: string = field("3+")
    issue_timestamp_ms: int64 = 0
    expiry_timestamp_ms: int64 = 0
    max_timestamp_ms: int64 = 0
    token_id: string = ""
    hmac: bytes_ = field()
    throttle_time_ms: int32 = 0
