"""`runnel_http_*`: what a gateway serves, by route; `/metrics` has them in the Prometheus text format.

Counted around all parts of the gateway, refused requests included. Routes are templates, and unknown paths
and methods are one, so that clients cannot add series.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from time import monotonic
from typing import TYPE_CHECKING

from runnel.observe.metrics import Family, Labels, LatencyCounts, Sample, one

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

ROUTE = "runnel.route"
"""The key of a scope with the route of the request, which the part that serves it sets before it responds."""

OTHER = "other"
METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
SSE, WEBSOCKET = "sse", "websocket"
SWITCHING, FORBIDDEN = 101, 403
NO_RESPONSE = "none"
"""The status of requests whose client disconnected before the response."""


class RouteCounts:
    """The requests of one method of a route."""

    __slots__ = ("durations", "received_bytes", "sent_bytes", "statuses", "streams")

    def __init__(self) -> None:
        self.statuses: Counter[str] = Counter()
        """Requests by the class of their status."""
        self.durations = LatencyCounts()
        self.streams: Counter[str] = Counter()
        """Open streams by kind."""
        self.received_bytes = 0
        self.sent_bytes = 0


class HttpMetrics:
    """Middleware that counts."""

    def __init__(self, app: "ASGIApp", body_memory: Callable[[], int]) -> None:
        """`body_memory` returns the bytes of all bodies that are received or in use."""
        self._app = app
        self._body_memory = body_memory
        self._routes: dict[tuple[str, str], RouteCounts] = {}

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        served = _Served(self, scope, receive, send)
        try:
            await self._app(scope, served.receive, served.send)
        finally:
            served.end()

    def of(self, scope: "Scope") -> RouteCounts:
        """The counts of the route of a request."""
        method = str(scope.get("method", "GET"))
        key = method if method in METHODS else OTHER, str(scope.get(ROUTE, OTHER))
        found = self._routes.get(key)
        if found is None:
            found = self._routes[key] = RouteCounts()
        return found

    def collect(self) -> Iterator[Family]:
        """All families."""
        rows: list[tuple[Labels, RouteCounts]] = [
            ((("method", method), ("route", route)), counts)
            for (method, route), counts in sorted(self._routes.items())
        ]
        yield Family(
            "runnel_http_requests_total", "counter", "Requests by the class of their status.", _statuses(rows)
        )
        yield Family(
            "runnel_http_request_seconds",
            "histogram",
            "From the head of a request to the end of its response; without streams.",
            ((labels, counts.durations.distribution()) for labels, counts in rows if counts.durations.total),
        )
        yield Family("runnel_http_streams", "gauge", "Open streams.", _streams(rows))
        yield Family(
            "runnel_http_request_body_bytes_total",
            "counter",
            "Bytes of bodies that were received.",
            ((labels, counts.received_bytes) for labels, counts in rows),
        )
        yield Family(
            "runnel_http_response_body_bytes_total",
            "counter",
            "Bytes of bodies that were sent, streams included.",
            ((labels, counts.sent_bytes) for labels, counts in rows),
        )
        yield one(
            "runnel_http_body_memory_bytes",
            "gauge",
            "Bytes of the bodies that are received or in use.",
            self._body_memory(),
        )


def _statuses(rows: list[tuple[Labels, RouteCounts]]) -> Iterator[Sample]:
    for labels, counts in rows:
        for status, count in sorted(counts.statuses.items()):
            yield (*labels, ("status", status)), count


def _streams(rows: list[tuple[Labels, RouteCounts]]) -> Iterator[Sample]:
    for labels, counts in rows:
        for kind, count in sorted(counts.streams.items()):
            yield (*labels[1:], ("kind", kind)), count


class _Served:
    """A request."""

    __slots__ = ("_began", "_counts", "_has_begun", "_metrics", "_receive", "_scope", "_send", "_stream")

    def __init__(self, metrics: HttpMetrics, scope: "Scope", receive: "Receive", send: "Send") -> None:
        self._metrics = metrics
        self._scope, self._receive, self._send = scope, receive, send
        self._began = monotonic()
        self._counts: RouteCounts | None = None
        self._has_begun = False
        self._stream = ""

    @property
    def counts(self) -> RouteCounts:
        """Where it is counted: its route is known once something is received or sent."""
        if self._counts is None:
            self._counts = self._metrics.of(self._scope)
        return self._counts

    async def receive(self) -> "Message":
        """The next message of the client."""
        message = await self._receive()
        if message["type"] == "http.request":
            self.counts.received_bytes += len(message.get("body", b""))
        return message

    async def send(self, message: "Message") -> None:
        """A message for the client."""
        kind = message["type"]
        if kind in ("http.response.start", "websocket.http.response.start"):
            self._begin(message["status"], SSE if _is_event_stream(message) else "")
        elif kind == "http.response.body":
            self.counts.sent_bytes += len(message.get("body", b""))
        elif kind == "websocket.accept":
            self._begin(SWITCHING, WEBSOCKET)
        elif kind == "websocket.close" and not self._has_begun:
            self._begin(FORBIDDEN)
        await self._send(message)

    def end(self) -> None:
        """It was served, or its client has disconnected."""
        if self._stream:
            self.counts.streams[self._stream] -= 1
        else:
            self.counts.durations.add(monotonic() - self._began)
        if not self._has_begun:
            self.counts.statuses[NO_RESPONSE] += 1

    def _begin(self, status: int, stream: str = "") -> None:
        self._has_begun = True
        self._stream = stream
        self.counts.statuses[f"{status // 100}xx"] += 1
        if stream:
            self.counts.streams[stream] += 1


def _is_event_stream(message: "Message") -> bool:
    return any(
        name == b"content-type" and value.startswith(b"text/event-stream")
        for name, value in message.get("headers", ())
    )
