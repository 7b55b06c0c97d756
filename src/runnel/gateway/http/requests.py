"""From an ASGI request to the handler of its operation, and back. Errors become problems here."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from runnel.client.cluster import Cluster, TopicView
from runnel.client.errors import BrokerError, ClientError
from runnel.gateway.http.bodies import Body
from runnel.gateway.http.limits import BODY_BYTES_MAX, MISSING_TOPIC_S, SMALL_BODY_BYTES_MAX
from runnel.gateway.http.operations import JSON, Operation
from runnel.gateway.http.principals import Principal
from runnel.gateway.http.problems import Problem, problem_of
from runnel.gateway.http.topic_names import check_topic_name
from runnel.gateway.metrics import ROUTE
from runnel.model.errors import ErrorCode

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from runnel.gateway.http.api import Api

T = TypeVar("T")
NO_STORE = {"cache-control": "no-store"}
QUERY_PARAMETERS_MAX = 50


@dataclass(slots=True)
class Call:
    """One request to an operation."""

    api: "Api"
    request: Request
    operation: Operation
    principal: Principal
    given: Body

    @property
    def cluster(self) -> Cluster:
        return self.principal.cluster

    @property
    def topic(self) -> str:
        """The topic of the path; a name that no topic can have is unknown."""
        name = str(self.request.path_params["topic"])
        check_topic_name(name, status=404)
        return name

    async def topic_view(self) -> TopicView:
        """The metadata of the topic of the path; 404 if it does not exist."""
        return await find_topic(self.cluster, self.topic)

    def query(self, kind: type[T]) -> T:
        """The parameters of the query."""
        return read_query(self.request.scope["query_string"].decode(), kind)

    @property
    def media_type(self) -> str:
        """The media type of the body, without parameters."""
        return media_type(self.request.headers.get("content-type", ""))

    def accepts(self, kind: str) -> bool:
        """Does the client ask for this media type by name?"""
        header = self.request.headers.get("accept")
        return header is not None and kind in accepted(header)

    async def body(self, limit: int = BODY_BYTES_MAX) -> bytes:
        """The whole body."""
        return await self.given.whole(limit)

    def lines(self) -> AsyncIterator[bytes | None]:
        """The lines of the body, as they arrive."""
        return self.given.lines()

    async def json(self, kind: type[T]) -> T:
        """The body of an operation that accepts JSON only, and no records."""
        if self.media_type not in self.operation.body:
            raise unsupported(self.operation, self.media_type)
        return decode(await self.body(SMALL_BODY_BYTES_MAX), kind)

    def answer(self, content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
        """A response with JSON."""
        return Response(msgspec.json.encode(content), status, {**NO_STORE, **(headers or {})}, JSON)


async def find_topic(cluster: Cluster, name: str, *, max_age_s: float | None = None) -> TopicView:
    """The metadata of a topic; 404 if it does not exist."""
    try:
        return await cluster.topic(name, missing_s=MISSING_TOPIC_S, max_age_s=max_age_s)
    except BrokerError as error:
        if error.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise Problem(404, f"the topic {name} does not exist", error=error.error.name) from None


def media_type(header: str) -> str:
    """The media type of a header, without parameters, in lower case."""
    return header.partition(";")[0].strip().lower()


def accepted(header: str) -> list[str]:
    """The media types of an Accept header, without their weights; those that are excluded are left out."""
    kinds = []
    for part in header.split(","):
        kind, _, parameters = part.partition(";")
        if "q=0" not in parameters.replace(" ", "").split(";"):
            kinds.append(kind.strip().lower())
    return kinds


def unsupported(operation: Operation, given: str) -> Problem:
    """The problem of a body with another content type."""
    kinds = ", ".join(operation.body)
    return Problem(415, f"the content type {given!r} is not accepted here; use {kinds}")


def read_query(text: str, kind: type[T]) -> T:
    """Parse the query of an address: unknown and repeated parameters are refused, as they are mistakes."""
    if not text:
        return msgspec.convert({}, kind)
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=QUERY_PARAMETERS_MAX)
    except ValueError:
        raise Problem(400, "the query is malformed") from None
    given = dict(pairs)
    if len(given) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise Problem(400, f"the parameter {repeated} is repeated")
    try:
        found = msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise Problem(400, f"the query is not valid: {error}") from None
    for name in given:
        if getattr(found, name) is None:
            # The text "null" was converted; a parameter without a value is left out.
            raise Problem(400, f"the query is not valid: {name} has no value")
    return found


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Kept: to find out what a union means takes longer than to decode a record."""
    return msgspec.json.Decoder(kind)


def decode(body: bytes | bytearray | memoryview, kind: type[T]) -> T:
    """Decode JSON: 400 if it is malformed, 422 if it is not what is expected."""
    try:
        decoder: msgspec.json.Decoder[T] = _decoder(cast("Any", kind))
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise Problem(422, f"the body is not valid: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Problem(400, f"the body is not JSON: {error}") from None
    except RecursionError:
        raise Problem(400, "the body is nested too deeply") from None


class Endpoint:
    """A path with all its operations."""

    def __init__(self, api: "Api", operations: Mapping[str, Operation]) -> None:
        self._api = api
        self._operations = operations
        self._path = next(iter(operations.values())).path

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        scope[ROUTE] = self._path
        request = Request(scope, receive)
        try:
            await self._respond(request, scope, receive, send)
        except (Problem, ClientError) as error:
            problem = error if isinstance(error, Problem) else problem_of(error)
            operation = self._operations.get(request.method)
            is_confluent = operation is not None and operation.is_confluent
            await problem.response(is_confluent=is_confluent)(scope, receive, send)
        except ClientDisconnect:
            pass

    async def _respond(self, request: Request, scope: "Scope", receive: "Receive", send: "Send") -> None:
        operation = self._operations.get(request.method)
        if operation is None:
            allowed = ", ".join(sorted(self._operations))
            raise Problem(405, f"this path has {allowed} only", headers={"allow": allowed})
        self._api.check_may_serve(operation)
        principals = self._api.principals
        principal = await principals.begin(request.headers.get("authorization"))
        try:
            with Body(request, self._api.bodies, principal) as body:
                await self._serve(Call(self._api, request, operation, principal, body), scope, receive, send)
        finally:
            principals.end(principal)

    async def _serve(self, call: Call, scope: "Scope", receive: "Receive", send: "Send") -> None:
        try:
            response = await call.operation.handler(call)
        except ClientError as error:
            # While the principal is known: its connections may no longer be usable.
            self._api.principals.failed(call.principal, error)
            raise
        # Not while the response is sent: its client may read slowly.
        call.given.used()
        await response(scope, receive, send)
