"""Protection of browsers: requests of foreign pages and for unknown hosts are rejected.

Any web page can send requests to a port of this machine. `Host` is checked against DNS rebinding (a foreign
name that resolves to this machine), `Origin` against requests that a foreign page makes with the rights of
the user of the browser. IP addresses cannot be rebound, so they are accepted as hosts.
"""

import socket
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from runnel.observe.http import is_known_host

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
HOSTS_KEPT = 32
"""Values of the Host header, which are long only if a client wants them to be."""
WRONG_HOST = "unknown host name: start the gateway with --allowed-host NAME"
WRONG_ORIGIN = "changes are accepted from pages of this gateway only"


class Guard:
    """Middleware that checks each request, and adds the headers that protect a page."""

    def __init__(self, app: "ASGIApp", allowed_hosts: Iterable[str] = ()) -> None:
        self._app = app
        names = ("localhost", socket.gethostname(), *allowed_hosts)
        self._hosts = frozenset(name.lower() for name in names)

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if scope["type"] == "websocket":
            await self._guard_socket(scope, receive, send, headers)
            return
        if scope["type"] != "http":
            raise RuntimeError(f"unexpected scope {scope['type']}")
        refusal = refusal_of(scope["method"], scope.get("scheme", "http"), headers, self._hosts)
        if refusal is not None:
            await _refuse(send, *refusal)
            return

        async def send_protected(message: "Message") -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *((name, value) for name, value in HEADERS if name not in present),
                ]
            await send(message)

        await self._app(scope, receive, send_protected)

    async def _guard_socket(
        self, scope: "Scope", receive: "Receive", send: "Send", headers: Mapping[str, str]
    ) -> None:
        """A page may open a WebSocket to any host: as one can change something, it counts as a change."""
        scheme = {"ws": "http", "wss": "https"}[scope.get("scheme", "ws")]
        if refusal_of("POST", scheme, headers, self._hosts) is None:
            await self._app(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})


def refusal_of(
    method: str, scheme: str, headers: Mapping[str, str], hosts: frozenset[str]
) -> tuple[int, str] | None:
    """The status and the reason with which a request is rejected; None if it is accepted."""
    host = headers.get("host", "")
    if not _is_known(host, hosts):
        return 421, WRONG_HOST
    if method in SAFE_METHODS:
        return None
    origin = headers.get("origin")
    if origin is not None and origin.lower() != f"{scheme}://{host.lower()}":
        return 403, WRONG_ORIGIN
    if origin is None and headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return 403, WRONG_ORIGIN
    return None


@lru_cache(maxsize=HOSTS_KEPT)
def _is_known(host: str, hosts: frozenset[str]) -> bool:
    return is_known_host(host, hosts)


async def _refuse(send: "Send", status: int, reason: str) -> None:
    body = f"{reason}\n".encode()
    headers: list[tuple[bytes, bytes]] = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        *HEADERS,
    ]
    start: dict[str, Any] = {"type": "http.response.start", "status": status, "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": body})
