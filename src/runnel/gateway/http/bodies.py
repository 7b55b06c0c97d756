"""Bodies of requests: each has a deadline, and all share a limited amount of memory."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from math import inf
from typing import Self

from starlette.requests import ClientDisconnect, Request

from runnel.gateway.http.limits import (
    BODY_BYTES_MAX,
    BODY_READ_S,
    BODY_ROOM_S,
    BODY_S,
    DRAIN_BYTES_MAX,
    LINE_BYTES_MAX,
    MESSAGE_PART_BYTES,
)
from runnel.gateway.http.operations import NDJSON
from runnel.gateway.http.problems import Problem

CLOSE = {"connection": "close"}
ARRIVED = "runnel.arrived"
"""The extension of a scope with a function that says whether the whole body has arrived."""

SHARE = "runnel.share"
"""The extension of a WebSocket's scope with the share of its connection."""


class Bodies:
    """The memory of all bodies that are received or in use."""

    def __init__(self, bytes_max: int, principal_bytes_max: int | None = None) -> None:
        """`principal_bytes_max` is what one principal may take; all of it if not given."""
        self._bytes_max = bytes_max
        self._principal_bytes_max = bytes_max if principal_bytes_max is None else principal_bytes_max
        self.held_bytes = 0
        self._by_principal: dict[object, int] = {}
        self._freed = asyncio.Event()

    def refusal(self, size_bytes: int, principal: object) -> Problem | None:
        """Why there is no room for this many more bytes of a principal; None if there is."""
        if self.held_bytes + size_bytes > self._bytes_max:
            whose, limit, status = "all requests", self._bytes_max, 503
        elif self._by_principal.get(principal, 0) + size_bytes > self._principal_bytes_max:
            whose, limit, status = "one principal's requests", self._principal_bytes_max, 429
        else:
            return None
        detail = f"the bodies of {whose} in flight may have {limit} bytes: try again later"
        return Problem(status, detail, headers=CLOSE)

    def count(self, more_bytes: int, principal: object) -> None:
        """A principal holds this many bytes more, or fewer, whether there is room or not."""
        self.held_bytes += more_bytes
        self._by_principal[principal] = self._by_principal.get(principal, 0) + more_bytes
        if not self._by_principal[principal]:
            del self._by_principal[principal]
        if more_bytes < 0:
            self._freed.set()
            self._freed = asyncio.Event()

    @contextmanager
    def held(self, size_bytes: int, principal: object) -> Iterator[None]:
        """Count this many bytes until the end of the block; a Problem if there is no room for them."""
        refusal = self.refusal(size_bytes, principal)
        if refusal is not None:
            raise refusal
        self.count(size_bytes, principal)
        try:
            yield
        finally:
            self.count(-size_bytes, principal)

    async def wait_for_room(self, principal: object) -> Problem | None:
        """Wait until memory is within the limit; returns the reason if that takes too long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(BODY_ROOM_S):
                while self.refusal(0, principal) is not None:
                    await self._freed.wait()
        return self.refusal(0, principal)


class Share:
    """What one request, or one connection, takes of that memory."""

    def __init__(self, bodies: Bodies, principal: object = None) -> None:
        """Connections whose principal is not known yet have a limit in common, as if they were of one."""
        self._bodies = bodies
        self._principal = principal
        self.size_bytes = 0

    def belongs_to(self, principal: object) -> None:
        """The principal is known from here on."""
        self._bodies.count(-self.size_bytes, self._principal)
        self._principal = principal
        self._bodies.count(self.size_bytes, principal)

    def resize(self, size_bytes: int) -> Problem | None:
        """Take this many bytes; why not if there is no room for more than before."""
        more = size_bytes - self.size_bytes
        refusal = self._bodies.refusal(more, self._principal) if more > 0 else None
        if refusal is None:
            self.count(size_bytes)
        return refusal

    def count(self, size_bytes: int) -> None:
        """This many bytes are in memory, whether there is room or not."""
        self._bodies.count(size_bytes - self.size_bytes, self._principal)
        self.size_bytes = size_bytes

    async def wait_for_room(self) -> Problem | None:
        """Until there is room for what was counted; says why not if that takes too long."""
        return await self._bodies.wait_for_room(self._principal)


class Body:
    """The body of a request. What is kept of it counts until the end of the block."""

    def __init__(self, request: Request, bodies: Bodies, principal: object = None) -> None:
        self._request = request
        self._bodies = bodies
        self._principal = principal
        self._share = Share(bodies, principal)
        self._has_lines = False
        self._deadline_s = inf

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._share.count(0)

    def used(self) -> None:
        """A handler has returned: it needs no whole body any more, but perhaps the next lines."""
        if not self._has_lines:
            self._share.count(0)

    async def whole(self, limit: int) -> bytes:
        """All of it; 413 if it is larger than the limit, 429 or 503 if there is no room for it."""
        if self._has_arrived():
            return await self._arrived(limit)
        too_large = _too_large(limit)
        length = self._request.headers.get("content-length", "")
        announced = int(length[:20]) if length.isdecimal() else 0
        is_asking = "expect" in self._request.headers
        if announced > limit and (is_asking or announced > DRAIN_BYTES_MAX):
            raise too_large
        refusal = self._bodies.refusal(announced, self._principal) if is_asking else None
        if refusal is not None:
            raise refusal
        self._deadline_s = asyncio.get_running_loop().time() + BODY_S
        body = bytearray()
        size_bytes = 0
        try:
            async for part in self._parts():
                size_bytes += len(part)
                if refusal is None:
                    refusal = too_large if size_bytes > limit else self._share.resize(size_bytes)
                if refusal is None:
                    body += part
                    continue
                # Read and dropped, so that its sender reads why it was refused.
                body.clear()
                self._share.count(0)
                if size_bytes > DRAIN_BYTES_MAX:
                    break
        except Problem as late:
            raise refusal or late from None
        if refusal is not None:
            raise refusal
        return bytes(body)

    def _has_arrived(self) -> bool:
        has_arrived = self._request.scope.get("extensions", {}).get(ARRIVED)
        return has_arrived is not None and has_arrived()

    async def _arrived(self, limit: int) -> bytes:
        """All of it, which is not waited for."""
        message = await self._request.receive()
        if message["type"] != "http.request":
            raise ClientDisconnect
        body: bytes = message["body"]
        refusal = _too_large(limit) if len(body) > limit else self._share.resize(len(body))
        if refusal is not None:
            raise refusal
        return body

    async def lines(self) -> AsyncIterator[bytes | None]:
        """The lines, without empty ones; None for one that is too long, of which nothing is kept.

        Rejected for lack of memory before the first line, later only after waiting: lines that were written
        would be sent again with the others.
        """
        self._has_lines = True
        begun = bytearray()
        is_skipping = has_line = False
        parts = self._parts()
        async for part in parts:
            size_bytes = self._share.size_bytes + len(part)
            refusal = None if has_line else self._share.resize(size_bytes)
            if refusal is not None:
                raise await self._drained(parts, refusal)
            # It is in memory, and may end what is begun.
            self._share.count(size_bytes)
            # Only what is new is searched: a line may arrive in very many parts.
            *ends, rest = part.split(b"\n")
            for end in ends:
                if is_skipping or len(begun) + len(end) > LINE_BYTES_MAX:
                    yield None
                elif line := (bytes(begun) + end).strip():
                    yield line
                begun.clear()
                is_skipping = False
                has_line = True
            if is_skipping or len(begun) + len(rest) > LINE_BYTES_MAX:
                is_skipping = True
                begun.clear()
            else:
                begun += rest
            self._share.count(len(begun))
            self._time_line(is_new=bool(ends), is_begun=bool(rest))
            if len(begun) > MESSAGE_PART_BYTES and (refusal := await self._wait_for_room()) is not None:
                raise await self._drained(parts, refusal)
        if is_skipping:
            yield None
        elif line := bytes(begun).strip():
            yield line

    async def _wait_for_room(self) -> Problem | None:
        """Until there is room for the line that is begun; that takes none of its time."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        refusal = await self._share.wait_for_room()
        self._deadline_s += loop.time() - began_s
        return refusal

    async def _drained(self, parts: AsyncIterator[bytes], refusal: Problem) -> Problem:
        """Read and drop what follows, so that its sender reads why it was refused, and what was written."""
        self._share.count(0)
        self._deadline_s = asyncio.get_running_loop().time() + BODY_S
        size_bytes = 0
        with suppress(Problem):
            async for part in parts:
                size_bytes += len(part)
                if size_bytes > DRAIN_BYTES_MAX:
                    break
        return refusal

    def _time_line(self, *, is_new: bool, is_begun: bool) -> None:
        """A line has its time from the first part of it on."""
        if not is_begun:
            self._deadline_s = inf
        elif is_new or self._deadline_s == inf:
            self._deadline_s = asyncio.get_running_loop().time() + BODY_S

    async def _parts(self) -> AsyncIterator[bytes]:
        """The parts as they arrive; 408 if none does for long, or all do not in time."""
        parts = self._request.stream()
        loop = asyncio.get_running_loop()
        while True:
            try:
                async with asyncio.timeout_at(min(loop.time() + BODY_READ_S, self._deadline_s)):
                    part = await anext(parts)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise self._late(is_slow=loop.time() >= self._deadline_s) from None
            if part:
                yield part

    def _late(self, *, is_slow: bool) -> Problem:
        detail = f"nothing was sent for {BODY_READ_S:g} s"
        if is_slow:
            detail = f"the body, or a line of it, was not complete after {BODY_S:g} s"
        return Problem(408, detail, headers=CLOSE)


def _too_large(limit: int) -> Problem:
    advice = f"; send {NDJSON}" if limit == BODY_BYTES_MAX else ""
    return Problem(413, f"the body is larger than {limit} bytes{advice}", headers=CLOSE)
