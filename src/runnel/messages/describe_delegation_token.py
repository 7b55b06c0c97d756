"""DescribeDelegationToken: the tokens of some owners.

v2 flexible · v3 token requester
"""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, bytes_, field, int16, int32, int64, string


class DescribeDelegationTokenOwner(Struct):
    principal_type: string = ""
    principal_name: string = ""


class DescribeDelegationTokenRequest(Request, api=41, versions="1-3", flexible="2+"):
    owners: list[DescribeDelegationTokenOwner] | None = field()


class DescribedDelegationTokenRenewer(Struct):
    principal_type: string = ""
    principal_name: string = ""


class DescribedDelegationToken(Struct):
    principal_type: string = ""
    principal_name: string = ""
    token_requester_principal_type: string = field("3+")
    token_requester_principal_name: string = field("3+")
    issue_timestamp: int64 = 0
    expiry_timestamp: int64 = 0
    max_timestamp: int64 = 0
    token_id: string = ""
    hmac: bytes_ = field()
    renewers: list[DescribedDelegationTokenRenewer] = field()


class DescribeDelegationTokenResponse(Response, api=41, versions="1-3", flexible="2+"):
    error_code: int16 = 0
    tokens: list[DescribedDelegationToken] = field()
    throttle_time_ms: int32 = 0
