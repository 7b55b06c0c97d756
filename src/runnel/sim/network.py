"""Simulated connections: delayed, ordered, and sometimes lost."""

import asyncio
from functools import partial
from random import Random
from typing import Any, cast

from runnel.client.connection_state import ConnectionState
from runnel.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from runnel.ports.disk import FileSlice
from runnel.ports.files import File
from runnel.ports.service import CloseConnection, Loan, Reply, Service, Session
from runnel.sim.world import Answer, ConnectionLost
from runnel.wire import Request, Response

DELAY_SECONDS_MAX = 0.005
LOSS_CHANCE = 0.01
"""Probability that a connection is lost around a request: before it arrives, or after it was processed."""


class SimConnection:
    """A connection: requests and responses arrive in order, each with a delay, until it is lost."""

    def __init__(self, service: Service, random: Random) -> None:
        self._service = service
        self._random = random
        self._loop = asyncio.get_running_loop()
        self._session = Session("sim", 0, "PLAINTEXT", random.getrandbits(31))
        self._state = ConnectionState("sim")
        self._waiting: dict[int, asyncio.Future[Response]] = {}
        self._last_arrival = 0.0
        self._is_closed = False

    async def open(self, *, is_classic: bool = False) -> "SimConnection":
        """Negotiate API versions; a classic client supports no features."""
        self._state.set_api_versions(await self.ask(ApiVersionsRequest("sim", "1"), ApiVersionsResponse))
        if is_classic:
            self._state.features.clear()
        return self

    async def ask(self, request: Request, answer: type[Answer]) -> Answer:
        """Send a request and wait for its response. Raises ConnectionLost."""
        if self._is_closed:
            raise ConnectionLost
        number, buffers = self._state.send(request)
        future: asyncio.Future[Response] = self._loop.create_future()
        self._waiting[number] = future
        draw = self._random.random()
        if draw < LOSS_CHANCE / 2:
            self._later(self.close)
        else:
            frame = memoryview(bytearray(b"".join(buffers)))[4:]
            self._later(self._arrive, frame, draw < LOSS_CHANCE)
        return cast(Answer, await future)

    def close(self) -> None:
        """Close the connection and fail pending requests."""
        self._is_closed = True
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ConnectionLost())
        self._waiting.clear()
        self._service.closed(self._session)

    def _later(self, callback: Any, *arguments: Any) -> None:
        # Bytes of one connection stay in order.
        arrival = self._loop.time() + self._random.random() * DELAY_SECONDS_MAX
        self._last_arrival = arrival = max(arrival, self._last_arrival)
        self._loop.call_at(arrival, callback, *arguments)

    def _arrive(self, frame: memoryview, is_response_lost: bool) -> None:
        if self._is_closed:
            return
        replies: list[Reply] = []
        size = len(frame)
        self._session.received = self._loop.time()
        try:
            self._service.serve(frame, 0, size, size, self._session, replies, 1)
        except CloseConnection:
            self.close()
            return
        finally:
            # Receive buffers are not reused here, so a loan never needs to be returned.
            self._service.finish_turn(Loan(lambda: None))
        if is_response_lost:
            self.close()
            return
        for reply in replies:
            if reply.is_filled:
                self._later(self._answered, reply)
            else:
                reply.on_filled = partial(self._later, self._answered, reply)

    def _answered(self, reply: Reply) -> None:
        if self._is_closed or reply.is_silent:
            return
        if not reply.parts:
            self.close()
            return
        data = b"".join(_bytes_of(part) for part in reply.parts)
        for number, response in self._state.received(data):
            waiting = self._waiting.pop(number)
            if not waiting.done():
                waiting.set_result(response)


def _bytes_of(part: Any) -> bytes | bytearray | memoryview:
    if isinstance(part, FileSlice):
        return cast(File, part.file).pread(part.length, part.position)
    return cast(bytes, part)
