"""From frame to handler to answer: the one place that knows versions, headers and what a failure looks like.

    frame → header → route (cached per API and version) → decode → handler → response
                                                                   ├── at once
                                                                   ├── Deferred: at the turn's end, or later
                                                                   ├── coroutine: when its task is done
                                                                   └── None: no answer is wanted (acks=0)

What cannot be answered raises CloseConnection. A Refusal that a handler lets out becomes the top-level error
of its response. Anything else that is raised is a bug: it is logged, and the client hears of an unknown server
error, or loses its connection where the response has no place for that.
"""

import asyncio
import logging
from collections.abc import Awaitable
from dataclasses import dataclass
from functools import partial
from types import CoroutineType
from typing import Any

from runnel.broker.api_versions import unsupported
from runnel.broker.broker import Broker
from runnel.broker.context import Context
from runnel.broker.deferred import Deferred
from runnel.broker.handlers import APIS, Handler, handler_of
from runnel.messages.registry import API_NAMES, FLEXIBLE_FROM, api
from runnel.model.errors import ErrorCode, Refusal
from runnel.ports.disk import FileSlice
from runnel.ports.service import CloseConnection, Reply, Session
from runnel.wire import MalformedMessage, Request, Response, decode, fields_of
from runnel.wire.frame import API_VERSIONS_KEY, RequestHeader, read_request_header, response_frame

PRODUCE_KEY = 0

log = logging.getLogger("runnel.broker")


@dataclass(slots=True)
class Route:
    """How requests of one API in one version are answered."""

    request: type[Request]
    response: type[Response]
    handler: Handler
    borrows_frame: bool
    """The handler is done with the frame's memory when the turn is; all others get a copy to keep."""


class Dispatch:
    """A broker as the network sees it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._routes: dict[tuple[int, int], Route] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def serve(self, frame: memoryview, session: Session) -> Reply | None:
        """Begin one request; None if it wants no answer. Raises CloseConnection."""
        self.broker.turn.is_open = True
        try:
            header = read_request_header(frame, FLEXIBLE_FROM)
            version = header.api_version
            route = self._routes.get((header.api_key, version))
            if route is None:
                if header.api_key == API_VERSIONS_KEY and version not in _accepted(API_VERSIONS_KEY):
                    return self._unknown_api_versions(header)
                route = self._add_route(header)
            if not route.borrows_frame:
                frame = memoryview(bytes(frame))
            request = decode(route.request, version, frame, header.body_position)
        except MalformedMessage as error:
            raise CloseConnection(f"malformed request: {error}") from None
        context = Context(self.broker, session, version, header.client_id)
        reply = Reply()
        try:
            result = route.handler(request, context)
        except CloseConnection:
            raise
        except Exception as error:  # noqa: BLE001 - _fail logs it
            result = error
        if result is None:
            return None
        if isinstance(result, Deferred):
            reply.holds_line = result.holds_line
            result.then(partial(self._answer, route, header, reply))
        elif isinstance(result, CoroutineType):
            reply.holds_line = True
            self._start(self._run(result, route, header, reply))
        else:
            self._answer(route, header, reply, result)
        return reply

    def finish_turn(self) -> None:
        """Write what the turn's requests staged and fill the replies that are ready."""
        self.broker.turn.finish()

    def closed(self, session: Session) -> None:
        """The connection is gone: its long poll needs no answer."""
        self.broker.waiting.leave(session)

    def _answer(
        self, route: Route, header: RequestHeader, reply: Reply, outcome: Response | Exception
    ) -> None:
        try:
            if isinstance(outcome, Exception):
                raise outcome
            parts = response_frame(outcome, header.api_version, header.correlation_id)
        except Exception as error:  # noqa: BLE001 - _fail logs it
            self._fail(route, header, reply, error)
            return
        if len(parts) == 1:
            reply.fill(parts, len(parts[0]))
        else:
            reply.fill(parts, sum(len(part) for part in parts if type(part) is not FileSlice))

    async def _run(
        self, handling: Awaitable[Response], route: Route, header: RequestHeader, reply: Reply
    ) -> None:
        outcome: Response | Exception
        try:
            outcome = await handling
        except Exception as error:  # noqa: BLE001 - _fail logs it
            outcome = error
        self._answer(route, header, reply, outcome)

    def _start(self, coroutine: Any) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        # The loop itself keeps only weak references to tasks.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _fail(self, route: Route, header: RequestHeader, reply: Reply, error: Exception) -> None:
        code = ErrorCode.UNKNOWN_SERVER_ERROR.code
        if isinstance(error, Refusal):
            code = error.code
        else:
            log.error("%s v%d failed", route.request.__name__, header.api_version, exc_info=error)
        response = _error_response(route.response, header.api_version, code, str(error))
        if response is None:
            if isinstance(error, Refusal):
                log.error("%s v%d has no place for %s", route.request.__name__, header.api_version, error)
            reply.fill([], 0)
            return
        parts = response_frame(response, header.api_version, header.correlation_id)
        reply.fill(parts, sum(map(len, parts)))

    def _add_route(self, header: RequestHeader) -> Route:
        api_key, version = header.api_key, header.api_version
        if api_key not in APIS:
            raise CloseConnection(f"there is no API with key {api_key} here")
        if version not in _accepted(api_key):
            raise CloseConnection(f"{API_NAMES[api_key]} has no version {version} here")
        messages = api(api_key)
        route = Route(messages.request, messages.response, handler_of(api_key), api_key == PRODUCE_KEY)
        self._routes[api_key, version] = route
        return route

    def _unknown_api_versions(self, header: RequestHeader) -> Reply:
        # The one question that must be answerable by a broker that does not know how it was asked (KIP-511).
        reply = Reply()
        parts = response_frame(unsupported(), 0, header.correlation_id)
        reply.fill(parts, sum(map(len, parts)))
        return reply


def _accepted(api_key: int) -> range:
    row = APIS[api_key]
    return range(row.version_min, row.version_max + 1)


def _error_response(response: type[Response], version: int, code: int, message: str) -> Response | None:
    """A response that says nothing but an error, if this response can."""
    present = {field.name for field in fields_of(response) if field.versions.covers(version)}
    if "error_code" not in present:
        return None
    if "error_message" in present:
        # What went wrong inside is for our log; a refusal was written for the client.
        text = message if code != ErrorCode.UNKNOWN_SERVER_ERROR.code else None
        return response(error_code=code, error_message=text)
    return response(error_code=code)
