"""Errors of the API as `application/problem+json` (RFC 9457), and what the errors of the client mean here."""

import random
from collections.abc import Mapping
from http import HTTPStatus

import msgspec
from starlette.responses import Response

from runnel.client.errors import (
    AuthenticationFailed,
    BrokerError,
    BufferFull,
    ClientError,
    OutcomeUnknown,
    TimedOut,
    TlsFailed,
)
from runnel.gateway.http.limits import RETRY_AFTER_S
from runnel.model.errors import ErrorCode

MEDIA_TYPE = "application/problem+json"
CHALLENGE = 'Basic realm="kafka", charset="UTF-8", Bearer realm="kafka"'
DETAIL_CHARACTERS_MAX = 2_000


class ProblemDetails(msgspec.Struct, omit_defaults=True, rename="camel"):
    """What went wrong: `detail` is for people, `error` is the name of Kafka's error, if it has one."""

    status: int
    title: str
    detail: str = ""
    error: str | None = None
    retry_after: int | None = None


class ConfluentError(msgspec.Struct):
    """An error of Confluent's REST proxy: its status, or a code that begins with it."""

    error_code: int
    message: str


class Problem(Exception):
    """The request is answered with this error."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        error: str | None = None,
        code: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`code` is Confluent's, if it differs from the status."""
        # Names of clients may contain what cannot be encoded.
        detail = detail.encode("utf-8", "replace").decode()[:DETAIL_CHARACTERS_MAX]
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.error = error
        self.code = code
        self.headers = dict(headers or {})
        if status in (429, 503):
            self.headers.setdefault("retry-after", str(random.randint(*RETRY_AFTER_S)))
        if status == 401:
            self.headers.setdefault("www-authenticate", CHALLENGE)

    @property
    def details(self) -> ProblemDetails:
        retry_after = self.headers.get("retry-after")
        return ProblemDetails(
            self.status,
            HTTPStatus(self.status).phrase,
            self.detail,
            self.error,
            None if retry_after is None else int(retry_after),
        )

    @property
    def confluent(self) -> ConfluentError:
        """As Confluent's REST proxy reports it."""
        code = self.code or _CONFLUENT_CODES.get(self.error or "", self.status)
        return ConfluentError(code, self.detail)

    def response(self, *, is_confluent: bool = False) -> Response:
        """The response."""
        headers = {**self.headers, "cache-control": "no-store"}
        if is_confluent:
            return Response(msgspec.json.encode(self.confluent), self.status, headers, "application/json")
        return Response(msgspec.json.encode(self.details), self.status, headers, MEDIA_TYPE)


_CONFLUENT_CODES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name: 40401,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED.name: 40301,
    ErrorCode.GROUP_AUTHORIZATION_FAILED.name: 40301,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED.name: 40301,
    ErrorCode.TOPIC_ALREADY_EXISTS.name: 40002,
}


_STATUSES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.UNKNOWN_TOPIC_ID: 404,
    ErrorCode.GROUP_ID_NOT_FOUND: 404,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: 403,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: 403,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: 403,
    ErrorCode.TOPIC_DELETION_DISABLED: 403,
    ErrorCode.TOPIC_ALREADY_EXISTS: 409,
    ErrorCode.UNKNOWN_MEMBER_ID: 409,
    ErrorCode.ILLEGAL_GENERATION: 409,
    ErrorCode.REBALANCE_IN_PROGRESS: 409,
    ErrorCode.NON_EMPTY_GROUP: 409,
    ErrorCode.FENCED_MEMBER_EPOCH: 409,
    ErrorCode.STALE_MEMBER_EPOCH: 409,
    ErrorCode.MESSAGE_TOO_LARGE: 413,
    ErrorCode.RECORD_LIST_TOO_LARGE: 413,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: 429,
    ErrorCode.INVALID_TOPIC_EXCEPTION: 422,
    ErrorCode.INVALID_PARTITIONS: 422,
    ErrorCode.INVALID_REPLICATION_FACTOR: 422,
    ErrorCode.INVALID_CONFIG: 422,
    ErrorCode.INVALID_RECORD: 422,
    ErrorCode.INVALID_TIMESTAMP: 422,
    ErrorCode.INVALID_GROUP_ID: 422,
    ErrorCode.INVALID_REQUEST: 422,
    ErrorCode.POLICY_VIOLATION: 422,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: 422,
    ErrorCode.OFFSET_OUT_OF_RANGE: 422,
    ErrorCode.DUPLICATE_RESOURCE: 422,
}
"""The statuses of Kafka's errors; others are 503, as most of them pass."""

SEND_AGAIN = (
    "it is unknown whether the record was written; send it again with the same idempotency key, and it will "
    "be stored once"
)
UNKNOWN_OUTCOME = (
    "it is unknown whether the records were written; if they are sent again, they may be stored twice"
)


def problem_of(error: ClientError) -> Problem:
    """The problem that an error of the client means."""
    if isinstance(error, BrokerError):
        return Problem(_STATUSES.get(error.error, 503), str(error), error=error.error.name)
    if isinstance(error, AuthenticationFailed):
        return Problem(401, "the broker did not accept the credentials")
    if isinstance(error, OutcomeUnknown):
        return Problem(504, f"{SEND_AGAIN if error.has_key else UNKNOWN_OUTCOME} ({error})")
    if isinstance(error, BufferFull):
        return Problem(429, str(error))
    if isinstance(error, TimedOut) and isinstance(error.__cause__, BrokerError):
        return problem_of(error.__cause__)
    if isinstance(error, TlsFailed):
        return Problem(503, "the gateway has no TLS connection to the brokers")
    return Problem(503, str(error))
