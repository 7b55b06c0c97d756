"""Bodies of requests: each arrives in time, and all together take a limited amount of memory."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from math import inf
from typing import Self

from starlette.requests import Request

from runnel.gateway.http.limits import BODY_READ_S, BODY_S, DRAIN_BYTES_MAX, LINE_BYTES_MAX
from runnel.gateway.http.operations import NDJSON
from runnel.gateway.http.problems import Problem

CLOSE = {"connection": "close"}


class Bodies:
    """The memory of all bodies that are received or in use."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.held_bytes = 0

    def has_room(self, size_bytes: int) -> bool:
        """Is there room for this many more bytes?"""
        return self.held_bytes + size_bytes <= self._bytes_max

    @contextmanager
    def held(self, size_bytes: int) -> Iterator[None]:
        """Count this many bytes until the end of the block; 503 if there is no room for them."""
        if not self.has_room(size_bytes):
            raise self.refusal()
        self.held_bytes += size_bytes
        try:
            yield
        finally:
            self.held_bytes -= size_bytes

    def refusal(self) -> Problem:
        """How a request is refused for which there is no room."""
        detail = f"the bodies of all requests in flight may have {self._bytes_max} bytes: try again later"
        return Problem(503, detail, headers=CLOSE)


class Share:
    """What one request, or one connection, takes of that memory."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self.size_bytes = 0

    def resize(self, size_bytes: int) -> bool:
        """Take this many bytes; False if there is no room for more than before."""
        more = size_bytes - self.size_bytes
        if more > 0 and not self._bodies.has_room(more):
            return False
        self._bodies.held_bytes += more
        self.size_bytes = size_bytes
        return True


class Body:
    """The body of a request. What is kept of it counts until the end of the block."""

    def __init__(self, request: Request, bodies: Bodies) -> None:
        self._request = request
        self._bodies = bodies
        self._share = Share(bodies)
        self._deadline_s = inf

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._share.resize(0)

    async def whole(self, limit: int) -> bytes:
        """All of it; 413 if it is larger than the limit, 503 if there is no room for it."""
        too_large = Problem(413, f"the body is larger than {limit} bytes; send {NDJSON}", headers=CLOSE)
        length = self._request.headers.get("content-length", "")
        announced = int(length[:20]) if length.isdecimal() else 0
        is_asking = "expect" in self._request.headers
        if announced > limit and (is_asking or announced > DRAIN_BYTES_MAX):
            raise too_large
        if is_asking and not self._bodies.has_room(announced):
            raise self._bodies.refusal()
        self._deadline_s = asyncio.get_running_loop().time() + BODY_S
        body = bytearray()
        size_bytes = 0
        refusal: Problem | None = None
        try:
            async for part in self._parts():
                size_bytes += len(part)
                if refusal is None:
                    refusal = too_large if size_bytes > limit else self._refusal(len(part))
                if refusal is None:
                    body += part
                    continue
                # Read and dropped, so that its sender reads why it was refused.
                body.clear()
                self._share.resize(0)
                if size_bytes > DRAIN_BYTES_MAX:
                    break
        except Problem as late:
            raise refusal or late from None
        if refusal is not None:
            raise refusal
        return bytes(body)

    async def lines(self) -> AsyncIterator[bytes | None]:
        """The lines, without empty ones; None for one that is too long, of which nothing is kept."""
        begun = bytearray()
        is_skipping = False
        async for part in self._parts():
            refusal = self._refusal(len(part))
            if refusal is not None:
                raise refusal
            # Only what is new is searched: a line may arrive in very many parts.
            *ends, rest = part.split(b"\n")
            for end in ends:
                if is_skipping or len(begun) + len(end) > LINE_BYTES_MAX:
                    yield None
                elif line := (bytes(begun) + end).strip():
                    yield line
                begun.clear()
                is_skipping = False
            if is_skipping or len(begun) + len(rest) > LINE_BYTES_MAX:
                is_skipping = True
                begun.clear()
            else:
                begun += rest
            self._share.resize(len(begun))
            self._time_line(is_new=bool(ends), is_begun=bool(rest))
        if is_skipping:
            yield None
        elif line := bytes(begun).strip():
            yield line

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

    def _refusal(self, size_bytes: int) -> Problem | None:
        """Keep this many bytes more, or say why not."""
        has_room = self._share.resize(self._share.size_bytes + size_bytes)
        return None if has_room else self._bodies.refusal()
