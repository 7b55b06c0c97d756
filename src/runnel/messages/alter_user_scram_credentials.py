"""AlterUserScramCredentials: set or delete SCRAM credentials."""

from __future__ import annotations

from runnel.wire import Request, Response, Struct, bytes_, field, int8, int16, int32, string


class ScramCredentialDeletion(Struct):
    name: string = ""
    mechanism: int8 = 0


class ScramCredentialUpsertion(Struct):
    name: string = ""
    mechanism: int8 = 0  # 1 SCRAM-SHA-256, 2 SCRAM-SHA-512
    iterations: int32 = 0
    salt: bytes_ = field()
    salted_password: bytes_ = field()


class AlterUserScramCredentialsRequest(Request, api=51, versions="0", flexible="0+"):
    deletions: list[ScramCredentialDeletion] = field()
    upsertions: list[ScramCredentialUpsertion] = field()


class AlterUserScramCredentialsResult(Struct):
    user: string = ""
    error_code: int16 = 0
    error_message: string | None = field()


class AlterUserScramCredentialsResponse(Response, api=51, versions="0", flexible="0+"):
    throttle_time_ms: int32 = 0
    results: list[AlterUserScramCredentialsResult] = field()
