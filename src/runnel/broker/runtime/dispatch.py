"""From frame to handler to answer: the one place that knows versions, headers and what a failure looks like.

    frame → header → route (cached per API and version) → decode → handler → response
                                                                   ├── at once
                                                                   ├── Promise: at the turn's end, or later
                                                                   └── None: no answer is wanted (acks=0)

What cannot be answered raises CloseConnection. A ApiError that a handler lets out becomes the top-level error
of its response. Anything else that is raised is a bug: it is logged, and the client hears of an unknown
server error, or loses its connection where the response has no place for that.
"""

import logging
from dataclasses import dataclass
from struct import Struct as Layout
from struct import error as LayoutError
from typing import Any

from runnel.broker.apis.api_versions import unsupported
from runnel.broker.apis.handlers import APIS, Handler, handler_of
from runnel.broker.runtime.broker import Broker
from runnel.broker.runtime.context import Context, Encoded
from runnel.broker.runtime.fetch_again import FetchShapes
from runnel.broker.runtime.produce_again import ProduceShapes
from runnel.broker.runtime.promise import Promise
from runnel.messages.fetch import FetchRequest
from runnel.messages.produce import ProduceRequest
from runnel.messages.registry import API_NAMES, FLEXIBLE_FROM, api
from runnel.model.errors import ApiError, ErrorCode
from runnel.ports.disk import FileSlice
from runnel.ports.service import CloseConnection, Loan, Reply, Session
from runnel.wire import MalformedMessage, Request, Response, decode_prefix, encode, fields_of
from runnel.wire.frame import API_VERSIONS_KEY, has_flexible_header, read_request_header, response_frame

PRODUCE_KEY = 0
FETCH_KEY = 1

_HEAD = Layout(">hhih").unpack_from
_PREFIX = Layout(">ii").pack
_PREFIX_FLEXIBLE = Layout(">iix").pack

log = logging.getLogger("runnel.broker")


@dataclass(slots=True)
class Route:
    """How requests of one API in one version are answered."""

    request: type[Request]
    response: type[Response]
    handler: Handler
    borrows_frame: bool
    """The handler is done with the frame's memory when the turn is; all others get a copy to keep."""
    has_flexible_header: bool


@dataclass(slots=True)
class Call(Context):
    """One request under way: what its handler sees, and the way its answer takes."""

    correlation_id: int
    route: Route
    reply: Reply

    def answer(self, outcome: Response | Encoded | Exception) -> None:
        """Put the response, or what can be said of a failure, into its place in the connection's queue."""
        try:
            if isinstance(outcome, Response):
                parts = encode(outcome, self.api_version)
            elif isinstance(outcome, Encoded):
                parts = [outcome.body]
            else:
                raise outcome
        except Exception as error:  # noqa: BLE001 - _fail logs it
            self._fail(error)
            return
        if len(parts) == 1:
            wire_bytes = memory_bytes = len(parts[0])
        else:
            memory_bytes = sum(len(part) for part in parts if type(part) is not FileSlice)
            wire_bytes = memory_bytes + sum(part.length for part in parts if type(part) is FileSlice)
        if self.route.has_flexible_header:
            parts[0] = _PREFIX_FLEXIBLE(wire_bytes + 5, self.correlation_id) + parts[0]
        else:
            parts[0] = _PREFIX(wire_bytes + 4, self.correlation_id) + parts[0]
        self.reply.fill(parts, memory_bytes)

    def _fail(self, error: Exception) -> None:
        code = ErrorCode.UNKNOWN_SERVER_ERROR.code
        if isinstance(error, ApiError):
            code = error.code
        else:
            log.error("%s v%d failed", self.route.request.__name__, self.api_version, exc_info=error)
        response = _error_response(self.route.response, self.api_version, code, str(error))
        if response is None:
            if isinstance(error, ApiError):
                log.error("%s v%d cannot say: %s", self.route.request.__name__, self.api_version, error)
            self.reply.fill([], 0)
            return
        parts = response_frame(response, self.api_version, self.correlation_id)
        self.reply.fill(parts, sum(map(len, parts)))


class Dispatch:
    """A broker as the network sees it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._routes: dict[int, Route] = {}
        self._produce_shapes = ProduceShapes(broker)
        self._fetch_shapes = FetchShapes(broker)

    def serve(self, frame: memoryview, session: Session) -> Reply | None:
        """Begin one request; None if it wants no answer. Raises CloseConnection."""
        self.broker.turn.is_open = True
        try:
            api_key, version, correlation_id, _ = _HEAD(frame)
            reply = None
            if api_key == PRODUCE_KEY:
                reply = self._produce_shapes.serve(frame, session, version, correlation_id)
            elif api_key == FETCH_KEY:
                reply = self._fetch_shapes.serve(frame, session, version, correlation_id)
            if reply is not None:
                return reply
            route = self._routes.get(api_key << 16 | version)
            if route is None:
                if api_key == API_VERSIONS_KEY and version not in _accepted(API_VERSIONS_KEY):
                    return _unknown_api_versions(correlation_id)
                route = self._add_route(api_key, version)
            return self._handle(route, frame, session)
        except (MalformedMessage, LayoutError) as error:
            raise CloseConnection(f"malformed request: {error}") from None

    def _handle(self, route: Route, frame: memoryview, session: Session) -> Reply | None:
        if not route.borrows_frame:
            frame = memoryview(bytes(frame))
        header = read_request_header(frame, FLEXIBLE_FROM)
        version = header.api_version
        # Bytes behind the message are ignored as in Kafka: librdkafka sends some when it asks for all topics.
        request, _ = decode_prefix(route.request, version, frame, header.body_position)
        if isinstance(request, ProduceRequest):
            self._produce_shapes.remember(request, frame, session, version)
        elif isinstance(request, FetchRequest):
            self._fetch_shapes.remember(request, frame, session, version, header.body_position)
        reply = Reply()
        call = Call(self.broker, session, version, header.client_id, header.correlation_id, route, reply)
        result: Response | Encoded | Promise[Any] | Exception | None
        try:
            result = route.handler(request, call)
        except CloseConnection:
            raise
        except Exception as error:  # noqa: BLE001 - the call logs it
            result = error
        if result is None:
            return None
        if isinstance(result, Promise):
            reply.holds_line = result.holds_line
            result.on_settled(call.answer)
        else:
            call.answer(result)
        return reply

    def finish_turn(self, loan: Loan | None = None) -> None:
        """Write what the turn's requests staged and fill the replies that are ready."""
        self.broker.turn.finish(loan)

    def closed(self, session: Session) -> None:
        """The connection is gone: its long poll needs no answer."""
        self.broker.waiting.leave(session)

    def ending(self) -> None:
        """No more requests will come: long polls are answered with what there is."""
        self.broker.waiting.give_up_all()

    def _add_route(self, api_key: int, version: int) -> Route:
        if api_key not in APIS:
            raise CloseConnection(f"there is no API with key {api_key} here")
        if version not in _accepted(api_key):
            raise CloseConnection(f"{API_NAMES[api_key]} has no version {version} here")
        messages = api(api_key)
        route = Route(
            messages.request,
            messages.response,
            handler_of(api_key),
            borrows_frame=api_key == PRODUCE_KEY,
            has_flexible_header=has_flexible_header(messages.response, version),
        )
        self._routes[api_key << 16 | version] = route
        return route


def _unknown_api_versions(correlation_id: int) -> Reply:
    # The one question that must be answerable by a broker that does not know how it was asked (KIP-511).
    reply = Reply()
    parts = response_frame(unsupported(), 0, correlation_id)
    reply.fill(parts, sum(map(len, parts)))
    return reply


def _accepted(api_key: int) -> range:
    row = APIS[api_key]
    return range(row.version_min, row.version_max + 1)


def _error_response(response: type[Any], version: int, code: int, message: str) -> Response | None:
    """A response that says nothing but an error, if this response can."""
    present = {field.name for field in fields_of(response) if field.versions.covers(version)}
    if "error_code" not in present:
        return None
    if "error_message" in present:
        # What went wrong inside is for our log; a refusal was written for the client.
        text = message if code != ErrorCode.UNKNOWN_SERVER_ERROR.code else None
        failure: Response = response(error_code=code, error_message=text)
    else:
        failure = response(error_code=code)
    return failure
