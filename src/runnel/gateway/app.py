"""The gateway as an ASGI application: the routes of all its parts behind one guard."""

import asyncio
import logging
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route

from runnel.gateway.console.routes import console_routes
from runnel.gateway.guard import Guard
from runnel.gateway.http.api import Api
from runnel.gateway.http.limits import UNSENT_BYTES_MAX
from runnel.gateway.http.operations import Role
from runnel.gateway.http.responses import Unsent
from runnel.gateway.lag import LagSummary
from runnel.gateway.lag_history import LagHistory
from runnel.gateway.metrics import OTHER, ROUTE, HttpMetrics
from runnel.gateway.options import GatewayOptions
from runnel.gateway.registry.routes import RegistryApp
from runnel.gateway.sessions import Sessions
from runnel.gateway.tracing import Traced, Tracing
from runnel.observe.exposition import CONTENT_TYPE, render
from runnel.observe.registry import Registry

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

CONSOLE = "/console"
PAGES = frozenset(("/", "/docs", "/livez", "/metrics", "/openapi.json"))
REGISTRY = "registry"

log = logging.getLogger("runnel.gateway")


class Gateway:
    """The application, its sessions, and the event that ends its streams."""

    def __init__(self, options: GatewayOptions, tracing: Tracing | None = None) -> None:
        self.options = options
        self.tracing = tracing or Tracing()
        self.sessions = Sessions(options)
        self.lag_history = LagHistory()
        self.is_stopping = asyncio.Event()
        self.api = Api(options, self.is_stopping)
        self.unsent = Unsent(UNSENT_BYTES_MAX)
        self.searches = 0
        """Searches of topics that are running."""
        routes = [
            Route("/", self._root),
            Route("/livez", _alive),
            Route("/metrics", self._metrics),
            *self.api.routes(),
        ]
        self._serves_reads = self.api.role is not Role.INGRESS
        """Console and registry show and change more than what is published."""
        if self._serves_reads:
            routes.append(Mount(CONSOLE, routes=console_routes(read_only=options.read_only)))
        app = Starlette(routes=routes)
        app.state.gateway = self
        self._pages = app
        self.registry = RegistryApp(options, self.api.principals)
        guarded = Guard(Traced(self._dispatch, self.tracing), options.allowed_hosts)
        self._app = HttpMetrics(guarded, lambda: self.api.bodies.held_bytes)
        self.metrics = Registry(lambda bug: log.error("a collector of metrics failed", exc_info=bug))
        self.metrics.add(self._app.collect)
        if self._serves_reads:
            self.metrics.add(self.registry.metrics.collect)

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        await self._app(scope, receive, send)

    async def _dispatch(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if (messages := self.api.of_messages(scope)) is not None:
            await messages(scope, receive, send)
            return
        # The registry splits paths before it decodes them. It has no WebSockets.
        is_registry = scope["type"] == "http" and self._serves_reads and self.registry.serves(scope["path"])
        scope[ROUTE] = REGISTRY if is_registry else _page(scope["path"])
        await (self.registry if is_registry else self._pages)(scope, receive, send)

    async def _root(self, request: "Request") -> Response:
        if "text/html" in request.headers.get("accept", ""):
            return RedirectResponse(f"{CONSOLE}/" if self._serves_reads else "/docs")
        return JSONResponse({})

    async def _metrics(self, request: "Request") -> Response:
        text = b"".join(render(self.metrics.families()))
        return Response(text, headers={"content-type": CONTENT_TYPE, "cache-control": "no-store"})

    def start(self) -> None:
        """Start the background tasks."""
        self.lag_history.start(self._lag_summaries)

    async def _lag_summaries(self) -> dict[str, LagSummary]:
        """What brokers report of the lag of groups, by a session that may ask them."""
        for session in self.sessions.recent():
            if summaries := await session.data.reported_lag.get():
                return summaries
        return {}

    def stop_streams(self) -> None:
        """End all streams; they would keep a stopping server waiting."""
        self.is_stopping.set()

    async def close(self) -> None:
        """Close all connections to brokers."""
        self.stop_streams()
        await self.api.close()
        await self.lag_history.close()
        await self.sessions.close()
        self.registry.close()


def _page(path: str) -> str:
    """The route of a page; operations of the API set theirs when they are found."""
    if path == CONSOLE or path.startswith(f"{CONSOLE}/"):
        return CONSOLE
    return path if path in PAGES else OTHER


async def _alive(request: "Request") -> Response:
    return JSONResponse({"status": "ok"})
