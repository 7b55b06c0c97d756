"""The request pipeline: every request passes it, from frame to response.

    frame → decode → authenticate → resolve topics → authorize → throttle → handle → account → encode

A handler returns its response, or None if none is wanted (acks=0), or a Promise of either.

Authentication, authorization, quotas and accounting are ports (`ports/gates.py`); `apis/access.py` lists what
each API needs. A repeated produce or fetch request is recognized by its bytes (`produce_template.py`,
`fetch_template.py`): it was permitted before, and skips authorization for as long as the authorizer's
version is the same; it is authenticated and accounted like any other, and connections with a quota do not
use templates.

What cannot be answered raises CloseConnection. An ApiError that a handler raises becomes the top-level error
of its response. Any other exception is a bug: it is logged, and the client gets UNKNOWN_SERVER_ERROR, or
loses its connection where the response cannot carry an error.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from struct import Struct as Layout
from struct import error as LayoutError
from typing import cast

from runnel.broker.apis.access import ACCESS, SEARCHES
from runnel.broker.apis.api_versions import unsupported
from runnel.broker.apis.handlers import (
    APIS,
    BROKER_APIS,
    CONTROLLER_APIS,
    FORWARDED,
    elements_max,
    handler_of,
)
from runnel.broker.apis.quota_exemptions import is_exempt_from_request_quota
from runnel.broker.apis.replica_requests import is_replica
from runnel.broker.apis.rules import Amend
from runnel.broker.apis.sliced import copy_records, keep_records, may_borrow
from runnel.broker.runtime.blocking import Job
from runnel.broker.runtime.broker import Broker
from runnel.broker.runtime.call import Call, Route
from runnel.broker.runtime.check import Check
from runnel.broker.runtime.context import Encoded
from runnel.broker.runtime.elements import has_many_elements
from runnel.broker.runtime.fetch_template import FetchTemplates
from runnel.broker.runtime.forwarding import forward
from runnel.broker.runtime.produce_template import ProduceTemplates
from runnel.broker.runtime.promise import MaybePromise, Promise, chain, settled
from runnel.broker.runtime.slices import while_lent, with_loan
from runnel.messages.fetch import FetchRequest
from runnel.messages.produce import ProduceRequest
from runnel.messages.registry import API_NAMES, FLEXIBLE_FROM, api
from runnel.model.errors import ApiError, NotController
from runnel.model.limits import (
    ENVELOPE_BYTES_MAX,
    INLINE_ELEMENTS_MAX,
    INLINE_REQUEST_BYTES_MAX,
    RECORDLESS_REQUEST_BYTES_MAX,
)
from runnel.ports.service import CloseConnection, Loan, Reply, Session
from runnel.wire import MalformedMessage, Request, Response, TooManyElements, decode_request, fields_of
from runnel.wire.frame import (
    API_VERSIONS_KEY,
    RequestHeader,
    has_flexible_header,
    read_request_header,
    response_frame,
)

PRODUCE_KEY = 0
ALTER_CONFIGS_KEYS = frozenset({33, 44})
ENVELOPE_KEY = 58
WAITING_KEYS = frozenset({11, 14})
"""JoinGroup and SyncGroup, which wait for other members."""
UNKNOWN_KEY = -1
"""The API key that is accounted for truncated frames."""

_HEAD = Layout(">hhih").unpack_from

Result = MaybePromise[Response | Encoded | None]


class Pipeline:
    """The broker as a service of the network layer."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._routes: dict[int, Route] = {}
        self._controller_routes: dict[int, Route] = {}
        self._produce_templates = ProduceTemplates(broker)
        self._fetch_templates = FetchTemplates(broker)
        self._searching = asyncio.Lock()
        broker.serve_forwarded = self.serve_forwarded

    def serve(
        self,
        buffer: memoryview,
        start: int,
        after: int,
        end: int,
        session: Session,
        replies: list[Reply],
        count_max: int,
    ) -> int:
        """Begin the request in buffer[start:after], and those up to `end` that repeat it; returns their end.

        Raises CloseConnection.
        """
        broker = self.broker
        broker.turn.is_open = True
        template = session.template
        gates = broker.gates
        if template is not None and session.template_version == gates.authorizer.version:
            try:
                gates.authenticator.check(session, template.api_key)
            except (ApiError, CloseConnection):
                # The session ended, or is authenticated again: the decoded request is refused and accounted.
                session.template = None
            else:
                position: int = template.serve(buffer, start, after, end, session, replies, count_max)
                if position != start:
                    return position
        if session.authentication is None:
            reply = self.serve_frame(buffer[start:after], session)
        else:
            reply = session.authentication.serve(buffer[start:after], self.serve_frame)
        if reply is not None:
            replies.append(reply)
        return after

    def serve_frame(self, frame: memoryview, session: Session) -> Reply | None:
        """Begin one request by decoding it; None if it wants no response. Raises CloseConnection."""
        self.broker.turn.is_open = True
        api_key = version = UNKNOWN_KEY
        try:
            api_key, version, _, _ = _HEAD(frame)
            routes = self._routes_of(session)
            route = routes.get(api_key << 16 | version)
            if route is None:
                if api_key == API_VERSIONS_KEY and version not in _accepted(API_VERSIONS_KEY):
                    return self._unknown_api_versions(frame, session)
                route = self._add_route(routes, api_key, version)
            return self._begin(route, frame, session)
        except Exception as error:
            # No call exists that could account for it.
            self.broker.gates.accounting.account(
                session, api_key, version, 1, len(frame), 0, session.received
            )
            if isinstance(error, (MalformedMessage, LayoutError)):
                raise CloseConnection(f"malformed request: {error}") from None
            raise

    def _begin(self, route: Route, frame: memoryview, session: Session) -> Reply | None:
        request_bytes = len(frame)
        is_large = False
        if not route.borrows_frame:
            if request_bytes > route.bytes_max:
                raise MalformedMessage(
                    f"{request_bytes} bytes without records, the limit is {route.bytes_max}"
                )
            is_large = request_bytes > INLINE_REQUEST_BYTES_MAX
            if not is_large:
                frame = memoryview(bytes(frame))
        header = read_request_header(frame, FLEXIBLE_FROM)
        request = None if is_large else _decoded_inline(route, frame, header)
        reply = Reply()
        call = Call(
            self.broker,
            session,
            header.api_version,
            header.client_id,
            header.correlation_id,
            route,
            reply,
            request_bytes,
            session.received,
        )
        result: Result | Exception
        try:
            if request is None:
                call.keeps_records = route.borrows_frame
                call.loan = session.loan
                if session.loan is None and not frame.readonly:
                    frame = memoryview(bytearray(frame))
                task = self._decode_and_handle(route, call, frame, header)
                result = self.broker.run(while_lent(task, call))
            else:
                result = self._permit_and_handle(route, request, call, frame, header)
        except CloseConnection:
            raise
        except Exception as error:  # noqa: BLE001 - the call logs it
            result = error
        if result is None:
            call.account(0)
            return None
        if isinstance(result, Promise):
            reply.mutes_connection = result.mutes_connection
            session.pending.add(call)
            result.on_settled(call.answer)
        else:
            call.answer(result)
        return reply

    async def _decode_and_handle(
        self, route: Route, call: Call, frame: memoryview, header: RequestHeader
    ) -> Result:
        """Serve a large request, decoded in a thread; the connection waits for its response."""
        try:
            job = Job(partial(_decoded_in_thread, route, frame, header))
            request, frame = await self.broker.disk.run_blocking(job)
        except MalformedMessage as error:
            raise CloseConnection(f"malformed request: {error}") from None
        call.is_large = True
        if not isinstance(request, ProduceRequest) or not may_borrow(request):
            # It was copied, and may be served for long.
            call.loan = None
        return with_loan(partial(self._permit_and_handle, route, request, call, frame, header), call)

    def _permit_and_handle(
        self, route: Route, request: Request, call: Call, frame: memoryview, header: RequestHeader
    ) -> Result:
        gates, session = self.broker.gates, call.session
        self._authenticate(request, call)
        may_forward = route.is_forwarded and not session.is_forwarded
        if may_forward and self.broker.validate_configs is not None and self._must_validate(request, call):
            self._throttle(call, request)
            call.is_validated = True
            return self.broker.run(self._validate_first(route, request, call, frame, header))
        if may_forward and self.broker.controller.must_forward:
            # The controller authorizes it, for the principal of the client.
            call.request = request
            self._throttle(call, request)
            return self.broker.run(forward(call, frame))
        call.authorizer_version = gates.authorizer.version
        if gates.authorizer.allows_all(session):
            return self._handle(Permitted(), route, request, call, frame, header)
        check = Check(call, request.api_key)
        if has_many_elements(request):
            if isinstance(request, ProduceRequest):
                keep_records(request, call)
            task = self._authorize_and_handle(check, route, request, call, frame, header)
            return self.broker.run(while_lent(task, call))
        if route.begins_search is not None and route.begins_search(request, check):
            return self.broker.run(self._search_and_handle(check, route, request, call, frame, header))
        return self._handle(_authorized(route, request, call, check), route, request, call, frame, header)

    async def _authorize_and_handle(
        self,
        check: Check,
        route: Route,
        request: Request,
        call: Call,
        frame: memoryview,
        header: RequestHeader,
    ) -> Result:
        """Authorize a request with many elements in a thread; the connection waits."""
        job = Job(partial(_authorized, route, request, call, check))
        permitted = await self.broker.disk.run_blocking(job)
        return with_loan(partial(self._handle, permitted, route, request, call, frame, header), call)

    async def _search_and_handle(
        self,
        check: Check,
        route: Route,
        request: Request,
        call: Call,
        frame: memoryview,
        header: RequestHeader,
    ) -> Response | Encoded | None:
        """Authorize a request that needs a search of its client's ACLs, in steps; the connection waits."""
        # One search at a time: clients of the same principal, which may arrive together, need only one.
        async with self._searching:
            is_decided = check.begin_search()
            while not is_decided:
                await asyncio.sleep(0)
                is_decided = check.continue_search()
        permitted = _authorized(route, request, call, check)
        return await settled(self._handle(permitted, route, request, call, frame, header))

    def _handle(
        self,
        permitted: "Permitted",
        route: Route,
        request: Request,
        call: Call,
        frame: memoryview,
        header: RequestHeader,
    ) -> Result:
        """Throttle and handle what is permitted of a request."""
        session = call.session
        self._throttle(call, request, is_denied=permitted.denial is not None)
        if permitted.denial is not None:
            return permitted.denial
        amendments = permitted.amendments
        if session.listener in self.broker.controller_listeners:
            # Templates are for data.
            call.request = request
        elif isinstance(request, ProduceRequest):
            is_permitted = not amendments and not call.is_partly_denied
            self._produce_templates.remember(request, frame, call, is_permitted)
        elif isinstance(request, FetchRequest):
            is_permitted = not amendments and not call.is_partly_denied
            self._fetch_templates.remember(request, frame, call, header.body_position, is_permitted)
        result: Result = route.handler(request, call)
        if route.is_forwarded and isinstance(result, Promise):
            call.request = request
            if not session.is_forwarded:
                result = self.broker.run(self._forward_if_refused(result, call, frame))
        if permitted.is_revocable and isinstance(result, Promise) and _may_wait_for_long(request, call):
            result = chain(result, partial(_confirmed, route, request, call))
        if amendments and result is not None:
            return chain(result, partial(self._amended, call, amendments))
        return result

    def _must_validate(self, request: Request, call: Call) -> bool:
        if call.is_validated or request.api_key not in ALTER_CONFIGS_KEYS:
            return False
        from runnel.broker.runtime.own_configs import concerns_own_configs

        return concerns_own_configs(self.broker, request, call.session)

    async def _validate_first(
        self, route: Route, request: Request, call: Call, frame: memoryview, header: RequestHeader
    ) -> Response | Encoded | None:
        from runnel.broker.runtime.own_configs import refused_configs

        refused = await refused_configs(self.broker, request)
        if refused is not None:
            return refused
        return await settled(self._permit_and_handle(route, request, call, frame, header))

    def _authenticate(self, request: Request, call: Call) -> None:
        try:
            self.broker.gates.authenticator.check(call.session, request.api_key)
        except ApiError:
            # Answered in the form of its own API.
            call.request = request
            raise

    def _amended(self, call: Call, amendments: list[Amend], response: Response | Encoded | None) -> Result:
        """The response with what authorization added to it, and without what it hid."""
        if response is None:
            return None
        if isinstance(response, Encoded):
            is_large = len(response.body) > INLINE_REQUEST_BYTES_MAX
        else:
            is_large = has_many_elements(response)
        job = partial(_amend, call, amendments, response)
        if not is_large and not call.is_large:
            return job()
        call.is_large = True
        return self.broker.run(self._in_thread(job))

    async def _in_thread(self, job: Callable[[], Response]) -> Response | Encoded | None:
        return await self.broker.disk.run_blocking(Job(job))

    async def _forward_if_refused(
        self, result: Promise[Response | Encoded | None], call: Call, frame: memoryview
    ) -> Response | Encoded | None:
        """The response of this node, or of the next controller if this one has lost its leadership."""
        try:
            return await settled(result)
        except NotController:
            return await forward(call, frame)

    def _throttle(self, call: Call, request: Request, *, is_denied: bool = False) -> None:
        """Charge the client for a request, once."""
        quotas, session = self.broker.gates.quotas, call.session
        session.client_id = call.client_id
        if quotas.limits(session) and not call.is_validated:
            is_exempt = is_exempt_from_request_quota(request, is_denied=is_denied)
            throttle_ms = quotas.throttle_ms(
                session, request.api_key, call.request_bytes, is_exempt=is_exempt
            )
            if throttle_ms:
                call.throttle(throttle_ms)

    def serve_forwarded(self, frame: memoryview, session: Session) -> Promise[memoryview | None]:
        """The response frame of a request that a broker forwarded; None if it has none."""
        promise: Promise[memoryview | None] = Promise()
        try:
            reply = self.serve_frame(frame, session)
        except CloseConnection:
            reply = None
        if reply is None:
            promise.resolve(None)
            return promise

        def filled() -> None:
            # Without the size. Only responses with records have parts that are not in memory.
            parts = cast("list[bytes | bytearray | memoryview]", reply.parts)
            if not parts:
                promise.resolve(None)
                return
            whole = parts[0] if len(parts) == 1 else b"".join(parts)
            promise.resolve(memoryview(whole)[4:])

        if reply.is_filled:
            filled()
        else:
            reply.on_filled = filled
        return promise

    def finish_turn(self, loan: Loan | None = None) -> None:
        """Write what the turn's requests staged and fill the replies that are ready."""
        self.broker.turn.finish(loan)

    def closed(self, session: Session) -> None:
        """The connection is closed: its long poll needs no response, and its requests are finished."""
        pending, session.pending = session.pending, set()
        for call in pending:
            call.account(0)
        self.broker.waiting.disconnected(session)
        self.broker.follower_sessions.disconnected(session)
        if session.on_closed is not None:
            session.on_closed()

    def ending(self) -> None:
        """Shut down: complete waiting fetches with the available records."""
        self.broker.waiting.expire_all()

    def _routes_of(self, session: Session) -> dict[int, Route]:
        is_controller = session.listener in self.broker.controller_listeners
        return self._controller_routes if is_controller else self._routes

    def _add_route(self, routes: dict[int, Route], api_key: int, version: int) -> Route:
        if api_key not in (BROKER_APIS if routes is self._routes else CONTROLLER_APIS):
            raise CloseConnection(f"there is no API with key {api_key} here")
        if version not in _accepted(api_key):
            raise CloseConnection(f"{API_NAMES[api_key]} has no version {version} here")
        messages = api(api_key)
        present = {field.name for field in fields_of(messages.response) if field.versions.covers(version)}
        route = Route(
            messages.request,
            messages.response,
            handler_of(api_key),
            ACCESS[api_key],
            SEARCHES.get(api_key),
            ENVELOPE_BYTES_MAX if api_key == ENVELOPE_KEY else RECORDLESS_REQUEST_BYTES_MAX,
            elements_max(api_key),
            borrows_frame=api_key == PRODUCE_KEY,
            is_forwarded=routes is self._routes and api_key in FORWARDED,
            has_flexible_header=has_flexible_header(messages.response, version),
            has_throttle_time="throttle_time_ms" in present,
        )
        routes[api_key << 16 | version] = route
        return route

    def _unknown_api_versions(self, frame: memoryview, session: Session) -> Reply:
        # The one request that must be answerable by a broker that does not know its version (KIP-511); a
        # client may send it before it is authenticated, and again with a version that is known.
        gates, request_bytes = self.broker.gates, len(frame)
        with suppress(ApiError):
            # Versions are no secret; but the request closes a connection whose session has expired.
            gates.authenticator.check(session, API_VERSIONS_KEY)
        header = read_request_header(frame, {})
        quotas = gates.quotas
        session.client_id = header.client_id
        if quotas.limits(session):
            throttle_ms = quotas.throttle_ms(session, API_VERSIONS_KEY, request_bytes, is_exempt=False)
            session.throttle_ms = max(session.throttle_ms, throttle_ms)
        reply = Reply()
        is_controller = session.listener in self.broker.controller_listeners
        parts = response_frame(unsupported(is_controller=is_controller), 0, header.correlation_id)
        size_bytes = sum(map(len, parts))
        accounting = gates.accounting
        accounting.account(
            session, API_VERSIONS_KEY, header.api_version, 1, request_bytes, size_bytes, session.received
        )
        reply.fill(parts, size_bytes)
        return reply


def _decode(route: Route, frame: memoryview, header: RequestHeader, limit: int) -> Request:
    # Trailing bytes are ignored: librdkafka sends some when it requests all topics.
    return decode_request(route.request, header.api_version, frame, header.body_position, limit)


def _decoded_inline(route: Route, frame: memoryview, header: RequestHeader) -> Request | None:
    """A request; None if it has so many elements that a thread must decode it."""
    try:
        return _decode(route, frame, header, INLINE_ELEMENTS_MAX)
    except TooManyElements:
        return None


def _decoded_in_thread(route: Route, frame: memoryview, header: RequestHeader) -> tuple[Request, memoryview]:
    """A large request and its frame, which is copied for those that keep parts of it: Produce writes them."""
    if not route.borrows_frame and not frame.readonly:
        frame = memoryview(bytes(frame))
    try:
        request = _decode(route, frame, header, route.elements_max)
    except MalformedMessage as error:
        reason = str(error)
    else:
        if isinstance(request, ProduceRequest) and not may_borrow(request):
            copy_records(request)
        return request, frame
    # The error above holds what was decoded until then, which is freed here and not on the event loop.
    raise MalformedMessage(reason)


@dataclass(slots=True)
class Permitted:
    """What authorization decided about a request, whose denied elements were removed from it."""

    denial: Response | None = None
    """The response, if nothing is left to handle."""
    amendments: list[Amend] = field(default_factory=list)
    """Changes to the handler's response."""
    is_revocable: bool = False
    """Was it decided by ACLs, which may change?"""


def _may_wait_for_long(request: Request, call: Call) -> bool:
    """Whether the answer to a request that waits has to be authorized as well.

    That of consumers' fetches is by their handler, element by element.
    """
    if isinstance(request, FetchRequest):
        return is_replica(request) or call.listener in call.broker.controller_listeners
    return request.api_key in WAITING_KEYS


def _confirmed(
    route: Route, request: Request, call: Call, response: Response | Encoded | None
) -> Response | Encoded | None:
    """The response, unless the permission was revoked while the request waited."""
    if call.is_permission_current:
        return response
    denial = _authorized(route, request, call, Check(call, request.api_key)).denial
    return response if denial is None else denial


def _authorized(route: Route, request: Request, call: Call, check: Check) -> Permitted:
    permitted = Permitted(is_revocable=True)
    for rule in route.rules:
        outcome = rule(request, call, check)
        if isinstance(outcome, Response):
            for amend in permitted.amendments:
                amend(outcome)
            permitted.denial = outcome
            break
        if outcome is not None:
            permitted.amendments.append(outcome)
    return permitted


def _amend(call: Call, amendments: list[Amend], response: Response | Encoded) -> Response:
    if isinstance(response, Encoded):
        response = call.route.decoded(response, call.api_version)
    for amend in amendments:
        amend(response)
    return response


def _accepted(api_key: int) -> range:
    row = APIS[api_key]
    return range(row.version_min, row.version_max + 1)
