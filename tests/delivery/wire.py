"""A proxy between a client and a broker that drops one request or one response."""

import asyncio
from types import TracebackType

from runnel.client.loop_thread import LoopThread

PRODUCE, OFFSET_COMMIT, END_TXN = 0, 8, 26
REQUEST, ANSWER = "request", "answer"


class Wire:
    """Forwards frames, and closes the connection at the chosen one."""

    def __init__(self) -> None:
        self._thread = LoopThread("wire")
        self._wanted: tuple[str, int, int] | None = None
        self._seen = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.broker_port = 0
        self.has_lost = False
        self._server = self._thread.call(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.port = self._server.sockets[0].getsockname()[1]

    def __enter__(self) -> "Wire":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.call(self._close())
        self._thread.close()

    def lose(self, what: str, api_key: int, number: int) -> None:
        """Drop the n-th request of this API, or its response."""
        self._wanted, self._seen, self.has_lost = (what, api_key, number), 0, False

    async def _close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        broker, to_broker = await asyncio.open_connection("127.0.0.1", self.broker_port)
        doomed: list[bytes] = []
        directions = [
            asyncio.create_task(self._pass_requests(client, to_broker, doomed)),
            asyncio.create_task(self._pass_answers(broker, to_client, doomed)),
        ]
        try:
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)
            for writer in (to_client, to_broker):
                writer.close()

    async def _pass_requests(
        self, client: asyncio.StreamReader, to_broker: asyncio.StreamWriter, doomed: list[bytes]
    ) -> None:
        async for frame in frames(client):
            lost = self._doom(int.from_bytes(frame[4:6], "big"))
            if lost == REQUEST:
                self.has_lost = True
                return
            if lost == ANSWER:
                doomed.append(frame[8:12])
            to_broker.write(frame)
            await to_broker.drain()

    async def _pass_answers(
        self, broker: asyncio.StreamReader, to_client: asyncio.StreamWriter, doomed: list[bytes]
    ) -> None:
        async for frame in frames(broker):
            if frame[4:8] in doomed:
                self.has_lost = True
                return
            to_client.write(frame)
            await to_client.drain()

    def _doom(self, api_key: int) -> str | None:
        if self._wanted is None or api_key != self._wanted[1]:
            return None
        self._seen += 1
        return self._wanted[0] if self._seen == self._wanted[2] else None


async def frames(reader: asyncio.StreamReader):
    """Length-prefixed frames until the connection is closed."""
    while True:
        try:
            prefix = await reader.readexactly(4)
            yield prefix + await reader.readexactly(int.from_bytes(prefix, "big"))
        except (asyncio.IncompleteReadError, ConnectionError):
            return
