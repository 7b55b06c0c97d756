"""What an operation is: all from which its route, its part of OpenAPI and of the docs page follow."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response

if TYPE_CHECKING:
    from runnel.gateway.http.requests import Call

JSON = "application/json"
NDJSON = "application/x-ndjson"
EVENT_STREAM = "text/event-stream"


class Role(StrEnum):
    """What a gateway does: takes records in, or everything else."""

    INGRESS = "ingress"
    EGRESS = "egress"
    BOTH = "both"


class NoQuery(msgspec.Struct, forbid_unknown_fields=True):
    """An operation without parameters."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A response: what it means, and its content by media type, with several types as a tuple."""

    description: str
    content: Mapping[str, Any] = field(default_factory=dict)


Handler = Callable[["Call"], Awaitable[Response]]

COMMON_ERRORS = (400, 401, 403, 404, 429, 503)
"""Errors that any operation may have; 400 is also for a query or a path that has no meaning."""

ERRORS = {
    400: "The request is malformed.",
    401: "Credentials are missing, or the broker did not accept them.",
    403: "Not permitted: by an ACL, because the topic is internal, or because the gateway is read-only.",
    404: "The topic, the partition or the group does not exist.",
    408: "The body was not sent in time.",
    409: "In conflict with the current state.",
    413: "The request, or a record, is too large.",
    415: "The content type is not accepted.",
    422: "The content is well-formed, and refused.",
    429: "Too many requests or records in flight; see Retry-After.",
    503: "No broker, leader, or not enough replicas at the moment; see Retry-After.",
    504: "The outcome is unknown: the records may have been written.",
}


@dataclass(frozen=True, slots=True)
class Operation:
    """A method of a path."""

    method: str
    path: str
    name: str
    summary: str
    handler: Handler
    responses: Mapping[int, Answer]
    description: str = ""
    role: Role = Role.EGRESS
    """The role that serves it, beside `both`."""
    tag: str = "messages"
    query: type[msgspec.Struct] = NoQuery
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers with a meaning of their own, each with its description; all are optional texts."""
    body: Mapping[str, Any] = field(default_factory=dict)
    """The body by media type; none without one."""
    errors: tuple[int, ...] = ()
    """Errors beside the common ones."""
    changes: bool = False
    """It is refused by a gateway that is read-only."""
    is_confluent: bool = False
    """Errors are those of Confluent's REST proxy, not problem details."""

    @property
    def all_errors(self) -> list[int]:
        bodies = (408, 413, 415, 422) if self.body else ()
        return sorted({*COMMON_ERRORS, *bodies, *self.errors})

    def is_served_by(self, role: Role) -> bool:
        """Does a gateway with this role serve it?"""
        return role is Role.BOTH or self.role in (role, Role.BOTH)
