"""Responses that are sent in parts: each part in time, and none after the client has gone."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Protocol

from starlette.responses import Response

from runnel.gateway.http.limits import STREAM_STUCK_S
from runnel.gateway.http.operations import NDJSON

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

ABORT = "runnel.abort"
"""The extension of a scope with a function that closes its connection, whatever is not sent yet."""


class Connection(Protocol):
    """What may have something that is not sent."""

    @property
    def unsent_bytes(self) -> int: ...

    def drop(self) -> None: ...


class Unsent:
    """What all connections have not sent: a slow client of a large response keeps it in memory."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._known: dict[Connection, int] = {}
        self._sum_bytes = 0

    def note(self, connection: Connection) -> None:
        """A connection has this much now; if that is too much together, the largest ones are dropped."""
        size_bytes = connection.unsent_bytes
        self._sum_bytes += size_bytes - self._known.pop(connection, 0)
        if size_bytes:
            self._known[connection] = size_bytes
        if self._sum_bytes <= self._bytes_max:
            return
        # Most have sent some of it since.
        self._known = {each: each.unsent_bytes for each in self._known}
        self._sum_bytes = sum(self._known.values())
        while self._sum_bytes > self._bytes_max:
            largest = max(self._known, key=self._known.__getitem__)
            self._sum_bytes -= self._known.pop(largest)
            largest.drop()

    def forget(self, connection: Connection) -> None:
        """A connection is closed."""
        self._sum_bytes -= self._known.pop(connection, 0)


class Stuck(Exception):
    """The client does not read."""


async def send_in_time(scope: "Scope", send: "Send", message: "Message") -> None:
    """Send a part; a client that does not read is cut off."""
    try:
        async with asyncio.timeout(STREAM_STUCK_S):
            await send(message)
    except TimeoutError:
        abort = scope.get("extensions", {}).get(ABORT)
        if abort is not None:
            abort()
        raise Stuck from None


class PartStream(Response):
    """A response whose parts are produced while it is sent."""

    media_type = "text/event-stream"

    def __init__(self, parts: AsyncGenerator[bytes], headers: Mapping[str, str] | None = None) -> None:
        super().__init__(None, 200, {"cache-control": "no-store", **(headers or {})})
        # Its length is not known.
        del self.headers["content-length"]
        self._parts = parts

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Send all parts; ends early if the client goes."""
        async with aclosing(self._parts):
            with suppress(Stuck):
                await self._send(scope, send)

    async def _send(self, scope: "Scope", send: "Send") -> None:
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        await send_in_time(scope, send, start)
        async for part in self._parts:
            await send_in_time(scope, send, {"type": "http.response.body", "body": part, "more_body": True})
        await send_in_time(scope, send, {"type": "http.response.body", "body": b""})


class LineStream(PartStream):
    """Lines of JSON."""

    media_type = NDJSON
