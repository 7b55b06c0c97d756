"""Lines between simulated clients and the broker: late, in order, and sometimes cut."""

import asyncio
from random import Random
from typing import Any, TypeVar, cast

from runnel.client.connection_state import ConnectionState
from runnel.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from runnel.ports.disk import FileSlice
from runnel.ports.files import File
from runnel.ports.service import CloseConnection, Loan, Reply, Service, Session
from runnel.wire import Request, Response

Answer = TypeVar("Answer", bound=Response)

DELAY_SECONDS_MAX = 0.005
CUT_CHANCE = 0.01
"""How often a line breaks around a request: before it arrives, or after it was carried out."""


class LineCut(Exception):
    """The connection broke; whether the broker did what it was asked is unknown."""


class Line:
    """One connection: requests arrive in order, each answer later, unless the line is cut in between."""

    def __init__(self, service: Service, random: Random) -> None:
        self._service = service
        self._random = random
        self._loop = asyncio.get_running_loop()
        self._session = Session("sim", 0, "PLAINTEXT", random.getrandbits(31))
        self._conversation = ConnectionState("sim")
        self._waiting: dict[int, asyncio.Future[Response]] = {}
        self._last_arrival = 0.0
        self._is_cut = False

    async def open(self, *, is_classic: bool = False) -> "Line":
        """Agree on versions; a classic client knows of no features."""
        self._conversation.set_api_versions(
            await self.ask(ApiVersionsRequest("sim", "1"), ApiVersionsResponse)
        )
        if is_classic:
            self._conversation.features.clear()
        return self

    async def ask(self, request: Request, answer: type[Answer]) -> Answer:
        """Send and wait. LineCut if no answer will come."""
        if self._is_cut:
            raise LineCut
        number, buffers = self._conversation.send(request, answer)
        future: asyncio.Future[Response] = self._loop.create_future()
        self._waiting[number] = future
        luck = self._random.random()
        if luck < CUT_CHANCE / 2:
            self._later(self.cut)
        else:
            frame = memoryview(bytearray(b"".join(buffers)))[4:]
            self._later(self._arrive, frame, luck < CUT_CHANCE)
        return cast(Answer, await future)

    def cut(self) -> None:
        """Break: everybody who waits hears of it."""
        self._is_cut = True
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(LineCut())
        self._waiting.clear()
        self._service.closed(self._session)

    def _later(self, callback: Any, *arguments: Any) -> None:
        # Bytes of one connection never overtake each other.
        arrival = self._loop.time() + self._random.random() * DELAY_SECONDS_MAX
        self._last_arrival = arrival = max(arrival, self._last_arrival)
        self._loop.call_at(arrival, callback, *arguments)

    def _arrive(self, frame: memoryview, answer_is_lost: bool) -> None:
        if self._is_cut:
            return
        try:
            reply = self._service.serve(frame, self._session)
        except CloseConnection:
            self.cut()
            return
        finally:
            # Frames are never received over each other here, so all of them may be written from later.
            self._service.finish_turn(Loan(lambda: None))
        if answer_is_lost:
            self.cut()
        elif reply is not None and reply.is_filled:
            self._later(self._answered, reply)
        elif reply is not None:
            reply.on_filled = lambda: self._later(self._answered, reply)

    def _answered(self, reply: Reply) -> None:
        if self._is_cut:
            return
        if not reply.parts:
            self.cut()
            return
        data = b"".join(_bytes_of(part) for part in reply.parts)
        for number, response in self._conversation.received(data):
            waiting = self._waiting.pop(number)
            if not waiting.done():
                waiting.set_result(response)


def _bytes_of(part: Any) -> bytes | bytearray | memoryview:
    if isinstance(part, FileSlice):
        return cast(File, part.file).pread(part.length, part.position)
    return cast(bytes, part)
