"""The admin listener: a small HTTP server for GET requests, on the event loop of the broker.

Nothing that its clients do may harm the broker: sizes, times and connections are limited, and bodies are
produced in slices between which the broker serves. A connection has one request at a time; later ones wait.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import NamedTuple, TypeAlias

from runnel.observe.http import (
    HEAD_BYTES_MAX,
    TEXT,
    BadRequest,
    HttpRequest,
    is_known_host,
    parse_head,
    response_head,
)

CONNECTIONS_MAX = 64
REQUESTS_PER_CONNECTION_MAX = 1_000
REQUEST_SECONDS = 30
"""How long a connection may wait for its next request, and take to send it."""
SEND_SECONDS = 30
"""How long a client may take to receive a response."""
CHUNK_BYTES = 64 * 1024
"""Bytes that are handed to the transport at a time."""
SLICE_SECONDS = 0.001
"""After this time, the production of a body lets the broker serve."""
BUG_INTERVAL_S = 60.0
"""Bugs are logged this often."""

log = logging.getLogger("runnel.server")

Query: TypeAlias = Mapping[str, list[str]]


class Page(NamedTuple):
    """The response to a request."""

    status: int
    content_type: str
    body: bytes | Iterable[bytes]
    """An iterator is read in slices; an empty piece only marks where it may be interrupted."""


Answer: TypeAlias = tuple[int, str, bytes | Iterable[bytes]]
"""A page, or its parts: status, content type and body."""
Handler: TypeAlias = Callable[[Query], Answer | Awaitable[Answer]]


class AdminListener:
    """Serves the pages of some paths."""

    def __init__(self, routes: Mapping[str, Handler]) -> None:
        """`routes` may change while it serves."""
        self._routes = routes
        self._servers: list[asyncio.Server] = []
        self._connections: dict[asyncio.Task[None], bool] = {}
        """The oldest first; whether each waits for a request."""
        self._is_closing = False
        self._reported_s = -BUG_INTERVAL_S

    async def listen(self, host: str, port: int) -> int:
        """Bind an address and serve; returns the port, chosen by the system if 0 is given. Raises OSError."""
        # An empty host binds all interfaces.
        hosts = frozenset({"localhost", socket.gethostname().lower()}) if _is_loopback(host) else None
        server = await asyncio.start_server(
            partial(self._connected, hosts), host or None, port, limit=HEAD_BYTES_MAX, reuse_address=True
        )
        self._servers.append(server)
        bound_port: int = server.sockets[0].getsockname()[1]
        return bound_port

    async def close(self) -> None:
        """Stop serving."""
        self.abort()
        # Until all have ended, as their sockets are closed by their tasks.
        await asyncio.gather(*self._connections, return_exceptions=True)

    def abort(self) -> None:
        """Close everything at once."""
        self._is_closing = True
        for server in self._servers:
            server.close()
        for connection in self._connections:
            connection.cancel()

    def _connected(
        self, hosts: frozenset[str] | None, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """`hosts`: names by which the listener may be addressed; None: any."""
        if self._is_closing or not self._has_room():
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(hosts, reader, writer))
        self._connections[task] = True
        task.add_done_callback(partial(self._ended, writer))

    def _has_room(self) -> bool:
        """Whether another connection may be served; the one that has been idle for longest is closed."""
        if len(self._connections) < CONNECTIONS_MAX:
            return True
        idle = next((task for task, is_idle in self._connections.items() if is_idle), None)
        if idle is None:
            return False
        del self._connections[idle]
        idle.cancel()
        return True

    def _ended(self, writer: asyncio.StreamWriter, task: "asyncio.Task[None]") -> None:
        self._connections.pop(task, None)
        if task.cancelled():
            # Perhaps before it began.
            writer.transport.abort()
        elif (bug := task.exception()) is not None:
            self._report(bug)

    def _set_idle(self, is_idle: bool) -> None:
        task = asyncio.current_task()
        if task in self._connections:
            self._connections[task] = is_idle

    async def _serve(
        self, hosts: frozenset[str] | None, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            for left in range(REQUESTS_PER_CONNECTION_MAX - 1, -1, -1):
                if not await self._serve_next(hosts, reader, writer, may_keep_open=left > 0):
                    break
                # Requests that are received already must not keep the broker from serving.
                await asyncio.sleep(0)
            await _finish(writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            # The client has disconnected, or does not receive.
            writer.transport.abort()
        except BaseException:
            writer.transport.abort()
            raise

    async def _serve_next(
        self,
        hosts: frozenset[str] | None,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        may_keep_open: bool,
    ) -> bool:
        """Serve a request; False if it was the last one of the connection."""
        self._set_idle(True)
        try:
            request = await _read_request(reader)
            if request is not None and hosts is not None and not _is_addressed(request, hosts):
                raise BadRequest(421, "a listener of the loopback interface has an address, or localhost")
        except BadRequest as bad:
            page = Page(bad.status, TEXT, f"{bad}\n".encode())
            await _send(writer, page, keeps_open=False, is_head=False)
            return False
        if request is None:
            return False
        self._set_idle(False)
        keeps_open = request.keeps_open and may_keep_open
        page = await self._page(request)
        await _send(writer, page, keeps_open=keeps_open, is_head=request.is_head)
        return keeps_open

    async def _page(self, request: HttpRequest) -> Page:
        handler = self._routes.get(request.path)
        if handler is None:
            known = " ".join(sorted(self._routes))
            return Page(404, TEXT, f"there is no such page; there are: {known}\n".encode())
        try:
            found = handler(request.query)
            page = Page(*(found if isinstance(found, tuple) else await found))
            if isinstance(page.body, bytes):
                return page
            return page._replace(body=await in_slices(page.body))
        except Exception as bug:  # noqa: BLE001 - reported
            self._report(bug)
            return Page(500, TEXT, b"this page cannot be made: see the log of the broker\n")

    def _report(self, bug: BaseException) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._reported_s >= BUG_INTERVAL_S:
            self._reported_s = now_s
            log.error("the admin listener failed to serve a request", exc_info=bug)


def _is_loopback(host: str) -> bool:
    return host == "localhost" or host.startswith("127.") or host == "::1"


def _is_addressed(request: HttpRequest, hosts: frozenset[str]) -> bool:
    """HTTP/1.0 has no Host, and no browser sends it."""
    return not request.host or is_known_host(request.host, hosts)


async def in_slices(pieces: Iterable[bytes]) -> list[bytes]:
    """All pieces, read in slices between which the event loop serves others."""
    made: list[bytes] = []
    began = perf_counter()
    for piece in pieces:
        if piece:
            made.append(piece)
        if perf_counter() - began >= SLICE_SECONDS:
            await asyncio.sleep(0)
            began = perf_counter()
    return made


async def _read_request(reader: asyncio.StreamReader) -> HttpRequest | None:
    """The next request; None if there is none. Raises BadRequest."""
    try:
        async with asyncio.timeout(REQUEST_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
    except TimeoutError:
        raise BadRequest(408, f"no request arrived within {REQUEST_SECONDS} s") from None
    except asyncio.LimitOverrunError:
        raise BadRequest(431, f"the head of a request has at most {HEAD_BYTES_MAX} bytes") from None
    except asyncio.IncompleteReadError as ended:
        if ended.partial:
            raise BadRequest(400, "the request is incomplete") from None
        return None
    return parse_head(head)


async def _send(writer: asyncio.StreamWriter, page: Page, *, keeps_open: bool, is_head: bool) -> None:
    pieces: Sequence[bytes] = [page.body] if isinstance(page.body, bytes) else list(page.body)
    length = sum(map(len, pieces))
    async with asyncio.timeout(SEND_SECONDS):
        writer.write(response_head(page.status, page.content_type, length, keeps_open=keeps_open))
        if not is_head:
            for chunk in _chunks(pieces):
                writer.write(chunk)
                await writer.drain()
        await writer.drain()


def _chunks(pieces: Iterable[bytes]) -> Iterable[bytes]:
    """The pieces joined, so that there are few, and none is much larger than CHUNK_BYTES."""
    joined: list[bytes] = []
    size_bytes = 0
    for piece in pieces:
        for start in range(0, len(piece), CHUNK_BYTES):
            part = piece[start : start + CHUNK_BYTES]
            joined.append(part)
            size_bytes += len(part)
            if size_bytes >= CHUNK_BYTES:
                yield b"".join(joined)
                joined, size_bytes = [], 0
    if joined:
        yield b"".join(joined)


async def _finish(writer: asyncio.StreamWriter) -> None:
    """Close a connection after the last response was received."""
    async with asyncio.timeout(SEND_SECONDS):
        writer.close()
        await writer.wait_closed()
