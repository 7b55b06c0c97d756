"""Mutated frames to a live broker, each followed by a valid request.

The response to the valid request shows the outcome of the frame before it: answered (both are), refused (the
connection is closed), or parked (neither comes soon; then the connection is closed, as by a crashed client).
"""

import asyncio
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress

TIMEOUT_S = 0.1
CONNECTIONS = 48
RESPONSE_BYTES_MAX = 1 << 26
QUESTION = 0x7EAD0000
_SIZE = struct.Struct(">i")
CONNECT_ATTEMPTS = 20

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Streams]]


def question(number: int) -> bytes:
    """ApiVersions v0 under a correlation id that no other request has."""
    return struct.pack(">ihhih", 10, 18, 0, QUESTION + number, -1)


async def read_response(reader: asyncio.StreamReader) -> bytes:
    """The next response without its size. Raises IncompleteReadError."""
    (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
    return await reader.readexactly(size)


class Attack:
    """Many connections that share one supply of frames."""

    def __init__(
        self,
        port: int,
        frames: Iterator[bytes],
        connections: int = CONNECTIONS,
        connect: Connect | None = None,
        secrets: tuple[bytes, ...] = (),
    ) -> None:
        self.port = port
        self.frames = frames
        self.connections = connections
        self.outcomes: Counter[str] = Counter()
        self.leaks: Counter[str] = Counter()
        """Responses that contain one of the secrets, by API key and version of the frame."""
        self._connect = connect or self._in_clear_text
        self._secrets = secrets

    @property
    def sent(self) -> int:
        return self.outcomes.total()

    async def run(self) -> None:
        await asyncio.gather(*(self._attacker() for _ in range(self.connections)))

    async def _in_clear_text(self) -> Streams:
        return await asyncio.open_connection("127.0.0.1", self.port, limit=RESPONSE_BYTES_MAX)

    async def _connected(self) -> Streams:
        for _ in range(CONNECT_ATTEMPTS):
            # A broker that is busy may refuse a connection.
            with suppress(OSError, EOFError, TimeoutError):
                return await self._connect()
            await asyncio.sleep(0.2)
        return await self._connect()

    async def _attacker(self) -> None:
        streams: Streams | None = None
        for number, frame in enumerate(self.frames):
            if streams is None:
                streams = await self._connected()
            outcome = await self._outcome(*streams, frame, number & 0xFFFF)
            self.outcomes[outcome] += 1
            if outcome != "answered":
                disconnect(streams[1])
                streams = None
        if streams is not None:
            disconnect(streams[1])

    async def _outcome(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, frame: bytes, number: int
    ) -> str:
        try:
            writer.write(frame + question(number))
            async with asyncio.timeout(TIMEOUT_S):
                while True:
                    response = await read_response(reader)
                    if any(secret in response for secret in self._secrets):
                        self.leaks[f"API {frame[4:6].hex()} version {frame[6:8].hex()}"] += 1
                    if response[:4] == _SIZE.pack(QUESTION + number):
                        return "answered"
        except TimeoutError:
            return "parked"
        except (asyncio.IncompleteReadError, OSError):
            return "refused"


def disconnect(writer: asyncio.StreamWriter) -> None:
    """Close a connection as a crashed client does, without a clean shutdown."""
    writer.transport.abort()
