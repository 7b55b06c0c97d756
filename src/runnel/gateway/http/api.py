"""The API as a part of a gateway: its routes, and what they share."""

import asyncio
from typing import TYPE_CHECKING

from starlette.middleware.errors import ServerErrorMiddleware
from starlette.routing import BaseRoute, Route, WebSocketRoute

from runnel.gateway.http.bodies import Bodies
from runnel.gateway.http.docs_page import STYLE_PATH, docs_page, docs_style
from runnel.gateway.http.groups import Acks
from runnel.gateway.http.limits import BODIES_BYTES_MAX, BODIES_PRINCIPAL_SHARE
from runnel.gateway.http.openapi import openapi_response
from runnel.gateway.http.operations import Operation, Role
from runnel.gateway.http.principals import Principals
from runnel.gateway.http.problems import Problem
from runnel.gateway.http.requests import Endpoint
from runnel.gateway.http.streams.socket import SocketEndpoint
from runnel.gateway.http.table import ACK, OPERATIONS, PREFIXES, PUBLISH, SUBSCRIBE

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from runnel.gateway.options import GatewayOptions


class Api:
    """The HTTP API of a gateway."""

    def __init__(self, options: "GatewayOptions", is_stopping: asyncio.Event) -> None:
        self.role = Role(options.role)
        self._is_read_only = options.read_only
        self._is_stopping = is_stopping
        self.principals = Principals(options)
        self.acks = Acks()
        # Without logins, all clients are one principal.
        share = BODIES_PRINCIPAL_SHARE if self.principals.has_logins else 1.0
        self.bodies = Bodies(BODIES_BYTES_MAX, int(BODIES_BYTES_MAX * share))
        self._watching: asyncio.Task[None] | None = None
        paths: dict[str, dict[str, Operation]] = {}
        for operation in OPERATIONS:
            paths.setdefault(operation.path, {})[operation.method] = operation
        self._endpoints = {path: Endpoint(self, operations) for path, operations in paths.items()}
        self._of_messages = {
            each.path.rpartition("/")[2]: ServerErrorMiddleware(self._endpoints[each.path])
            for each in (PUBLISH, SUBSCRIBE, ACK)
        }

    def of_messages(self, scope: "Scope") -> "ASGIApp | None":
        """The application of a request to publish, to subscribe or to acknowledge, else None.

        Most requests are such: these are found without a search through all routes.
        """
        if scope["type"] != "http":
            return None
        parts = scope["path"].split("/", 3)
        if len(parts) < 4 or parts[:2] != ["", "topics"] or not parts[2]:
            return None
        found = self._of_messages.get(parts[3])
        if found is not None:
            scope.update(endpoint=found.app, path_params={"topic": parts[2]})
        return found

    def routes(self) -> list[BaseRoute]:
        """All routes: a path has all its methods, and answers to others."""
        socket = SocketEndpoint(self, SUBSCRIBE, PUBLISH, ACK)
        return [
            *(Route(path, endpoint) for path, endpoint in self._endpoints.items()),
            WebSocketRoute(SUBSCRIBE.path, socket),
            Route("/openapi.json", openapi_response),
            Route("/docs", docs_page),
            Route(STYLE_PATH, docs_style),
            *(Route(f"{prefix}/{{rest:path}}", _unknown) for prefix in PREFIXES),
        ]

    def check_may_serve(self, operation: Operation) -> None:
        """Problem if this gateway has another role, changes nothing, or stops."""
        if self._watching is None:
            self._watching = asyncio.create_task(self._stop_streams())
        if not operation.is_served_by(self.role):
            raise Problem(
                404, f"this gateway has the role {self.role}: use one with {operation.role} or both"
            )
        if operation.changes and self._is_read_only:
            raise Problem(403, "this gateway is read-only")

    async def _stop_streams(self) -> None:
        await self._is_stopping.wait()
        self.principals.stop_streams()

    async def close(self) -> None:
        """Close all connections to brokers."""
        if self._watching is not None:
            self._watching.cancel()
        await self.principals.close()


class _Unknown:
    """Paths below those of the API that it does not have."""

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        await Problem(404, "there is no such path; see /docs").response()(scope, receive, send)


_unknown = _Unknown()
