"""Requests over HTTP to operations, and what they lead to back to responses.

Names of subjects are percent-encoded as a whole and may contain slashes: paths are split before they are
decoded.
"""

import json
import logging
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qsl, unquote_to_bytes
from weakref import WeakKeyDictionary

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from runnel import __version__
from runnel.client.cluster import Cluster
from runnel.client.errors import AuthenticationFailed, BrokerError, ClientError
from runnel.gateway.http.principals import Principal, Principals
from runnel.gateway.http.problems import Problem
from runnel.gateway.registry.bodies import MEDIA_TYPE, Bodies, Refused
from runnel.gateway.registry.handlers import OPERATIONS, Call, Operation
from runnel.gateway.registry.metrics import UNKNOWN, RegistryMetrics, Route
from runnel.gateway.registry.store import Store, Workers
from runnel.model.errors import ErrorCode
from runnel.registry.checks import Verdicts
from runnel.registry.decision import Decision
from runnel.registry.errors import RegistryError
from runnel.registry.names import context_named
from runnel.registry.state import RegistryState

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from runnel.gateway.options import GatewayOptions

ROOTS = frozenset(operation.path.split("/")[1] for operation in OPERATIONS) | {"v1"}
DENIED = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
METADATA = Route("GET", "/v1/metadata")
CODES = {401: 40101, 503: 50002}
"""Confluent's codes of what is refused before it reaches the registry; others are the status."""

log = logging.getLogger("runnel.registry")


class Owner(Protocol):
    """Who reads the registry: a principal, or the session of a person."""

    @property
    def cluster(self) -> Cluster: ...


class RegistryApp:
    """The registry as an ASGI application."""

    def __init__(self, options: "GatewayOptions", principals: Principals) -> None:
        """`principals` are those of the gateway, which closes them."""
        self._options = options
        self._principals = principals
        self._bodies = Bodies()
        self.metrics = RegistryMetrics()
        self._workers = Workers(self.metrics)
        # By owners: a store has its cluster, and by that would keep itself, and credentials, for ever.
        self._stores: WeakKeyDictionary[Owner, Store] = WeakKeyDictionary()

    def serves(self, path: str) -> bool:
        """Is a path one of the registry's?"""
        return path.removeprefix("/").partition("/")[0] in ROOTS

    def store_of(self, owner: Owner) -> Store:
        """The registry as a principal or a person reads it, for as long as these are kept."""
        store = self._stores.get(owner)
        if store is None:
            store = self._stores[owner] = Store(owner.cluster, self._workers)
        return store

    def close(self) -> None:
        """End its threads."""
        self._workers.close()

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        began_s = monotonic()
        request = Request(scope, receive)
        response: Response | None = None
        request.state.route = UNKNOWN
        try:
            response = await self._answer(request)
            await response(scope, receive, send)
        except ClientDisconnect:
            return
        finally:
            code = response.code if isinstance(response, ErrorResponse) else None
            status = None if response is None else response.status_code
            self.metrics.served(request.state.route, status, code, monotonic() - began_s)

    async def _answer(self, request: Request) -> Response:
        """What is answered, an error too. Raises ClientDisconnect."""
        try:
            return await self._respond(request)
        except ClientDisconnect:
            raise
        except RegistryError as error:
            return ErrorResponse(error.status, error.code, error.message)
        except Problem as problem:
            response = ErrorResponse(
                problem.status, CODES.get(problem.status, problem.status), problem.detail
            )
            response.headers.update(problem.headers)
            return response
        except ClientError as error:
            return client_error(error)
        except Exception:
            log.exception("a request to the registry failed")
            return ErrorResponse(500, 50001, "Error in the backend data store")

    async def _respond(self, request: Request) -> Response:
        raw_path = request.scope.get("raw_path") or request.scope["path"].encode()
        parts = [_decoded(part) for part in raw_path.decode("latin-1").strip("/").split("/")]
        context = ""
        if parts[0] == "contexts" and len(parts) > 2:
            context, parts = context_named(parts[1]), parts[2:]
        async with self._principals.use(request.headers.get("authorization")) as principal:
            try:
                return await self._respond_to(principal, request, context, parts)
            except ClientError as error:
                self._principals.failed(principal, error)
                raise

    async def _respond_to(
        self, principal: Principal, request: Request, context: str, parts: list[str]
    ) -> Response:
        if parts[0] == "v1" and not context:
            request.state.route = METADATA
            return await _metadata(request.method, parts, principal.cluster)
        operation, names = matched(request.method, parts)
        request.state.route = Route(operation.method, operation.path)
        if operation.write is not None and self._options.read_only:
            raise Refused(403, "this gateway is read-only")
        async with self._bodies.of(request) as body:
            call = _call(request, names, context, body)
            return await _carry_out(operation, call, self.store_of(principal))


async def _carry_out(operation: Operation, call: Call, store: Store) -> Response:
    write, read = operation.write, operation.read

    # Responses are encoded in the thread: lists may have a thousand schemas.
    def decide(state: RegistryState, verdicts: Verdicts) -> Decision[bytes | None]:
        nonlocal call
        assert write is not None
        if operation.resolve is not None:
            call = operation.resolve(state, call)
        decision = write(state, verdicts, call)
        return Decision(_encoded(decision.response, is_text=operation.is_text), decision.records)

    def find(state: RegistryState, verdicts: Verdicts) -> bytes | None:
        assert read is not None
        return _encoded(read(state, verdicts, call), is_text=operation.is_text)

    body = await (store.read(find) if write is None else store.write(decide))
    return Response(status_code=204) if body is None else Response(body, media_type=MEDIA_TYPE)


def matched(method: str, parts: list[str]) -> tuple[Operation, dict[str, str]]:
    """The operation of a method and a path, and the names in its path. Raises RegistryError."""
    allowed = []
    for operation in OPERATIONS:
        names = _names(operation.path.split("/")[1:], parts)
        if names is not None:
            if operation.method == method or (method == "HEAD" and operation.method == "GET"):
                return operation, names
            allowed.append(operation.method)
    if allowed:
        raise Refused(405, f"HTTP 405 Method Not Allowed; allowed are {', '.join(allowed)}")
    raise Refused(404, "HTTP 404 Not Found")


def _names(pattern: list[str], parts: list[str]) -> dict[str, str] | None:
    if len(pattern) != len(parts):
        return None
    names = {}
    for wanted, given in zip(pattern, parts, strict=True):
        if wanted.startswith("{"):
            names[wanted[1:-1]] = given
        elif wanted != given:
            return None
    return names


def _decoded(part: str) -> str:
    try:
        return unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        raise Refused(400, "the path is not UTF-8") from None


def _call(request: Request, names: dict[str, str], context: str, body: Any) -> Call:
    pairs = parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)
    keys, values = ([value for name, value in pairs if name == wanted] for wanted in ("key", "value"))
    properties = tuple(zip(keys, values, strict=False))
    return Call(names, dict(pairs), properties, body, "" if context == "." else context)


async def _metadata(method: str, parts: list[str], cluster: Cluster) -> Response:
    if parts[1:2] != ["metadata"] or len(parts) > 3:
        raise Refused(404, "HTTP 404 Not Found")
    if method not in ("GET", "HEAD"):
        raise Refused(405, "HTTP 405 Method Not Allowed; allowed are GET")
    match parts[2:]:
        case ["id"]:
            await cluster.retry(lambda: cluster.refresh([]))
            return _json({"id": "", "scope": {"path": [], "clusters": {"kafka-cluster": cluster.cluster_id}}})
        case ["version"]:
            return _json({"version": __version__, "commitId": ""})
    raise Refused(404, "HTTP 404 Not Found")


# Responses.


def _encoded(value: Any, *, is_text: bool) -> bytes | None:
    if value is None:
        return None
    return value.encode(errors="replace") if is_text else encoded(value)


def encoded(value: Any) -> bytes:
    """A value as JSON; elements of a list one by one, as other threads wait for the end of each."""
    if isinstance(value, list):
        return b"[" + b",".join(encoded(one) for one in value) + b"]"
    return json.dumps(value, separators=(",", ":")).encode()


class ErrorResponse(Response):
    """An error; `code` is Confluent's."""

    def __init__(self, status: int, code: int, message: str) -> None:
        self.code = code
        super().__init__(encoded({"error_code": code, "message": message}), status, media_type=MEDIA_TYPE)


def _json(value: Any) -> Response:
    return Response(encoded(value), media_type=MEDIA_TYPE)


def client_error(error: ClientError) -> Response:
    """What an error of the client means here. Its text may name brokers, which is for the log only."""
    if isinstance(error, AuthenticationFailed):
        return ErrorResponse(401, 40101, "the broker did not accept the credentials")
    if isinstance(error, BrokerError) and error.error in DENIED:
        return ErrorResponse(403, 40301, f"the principal lacks the rights: {error.error.name}")
    log.warning("a request to the registry failed: %s", error)
    if error.retriable:
        response = ErrorResponse(503, 50002, "the cluster does not answer; try again")
        response.headers["retry-after"] = "1"
        return response
    return ErrorResponse(500, 50001, "Error in the backend data store")
