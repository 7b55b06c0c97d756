"""DescribeUserScramCredentials: the SCRAM mechanisms of users, without secrets."""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, field, int8, int16, int32, string


class UserName(Struct):
    name: string = ""


class DescribeUserScramCredentialsRequest(Request, api=50, versions="0", flexible="0+"):
    users: list[UserName] | None = field()  # null or empty for all


class CredentialInfo(Struct):
    mechanism: int8 = 0  # 1 SCRAM-SHA-256, 2 SCRAM-SHA-512
    iterations: int32 = 0


class DescribeUserScramCredentialsResult(Struct):
    user: string = ""
    error_code: int16 = 0
    error_message: string | None = field()
    credential_infos: list[CredentialInfo] = field()


class DescribeUserScramCredentialsResponse(Response, api=50, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: string | None = field()
    results: list[DescribeUserScramCredentialsResult] = field()
