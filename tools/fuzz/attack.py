"""Mutated frames to a live broker, each followed by a valid request.

The response to the valid request shows the outcome of the frame before it: answered (both are), refused (the
connection is closed), or parked (neither comes soon; then the connection is closed, as by a crashed client).
"""

import asyncio
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

TIMEOUT_S = 0.1
CONNECTIONS = 48
RESPONSE_BYTES_MAX = 1 << 26
QUESTION = 0x7EAD0000
_HEAD = struct.Struct(">ii")


def question(number: int) -> bytes:
    """ApiVersions v0 under a correlation id that no other request has."""
    return struct.pack(">ihhih", 10, 18, 0, QUESTION + number, -1)


class Attack:
    """Many connections that share one supply of frames."""

    def __init__(self, port: int, frames: Iterator[bytes], connections: int = CONNECTIONS) -> None:
        self.port = port
        self.frames = frames
        self.connections = connections
        self.outcomes: Counter[str] = Counter()

    @property
    def sent(self) -> int:
        return self.outcomes.total()

    async def run(self) -> None:
        await asyncio.gather(*(self._attacker() for _ in range(self.connections)))

    async def _attacker(self) -> None:
        writer: asyncio.StreamWriter | None = None
        for number, frame in enumerate(self.frames):
            if writer is None:
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", self.port, limit=RESPONSE_BYTES_MAX
                )
            writer.write(frame + question(number & 0xFFFF))
            outcome = await self._outcome(reader, number & 0xFFFF)
            self.outcomes[outcome] += 1
            if outcome != "answered":
                await _disconnect(writer)
                writer = None
        if writer is not None:
            await _disconnect(writer)

    async def _outcome(self, reader: asyncio.StreamReader, number: int) -> str:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                while True:
                    size, correlation_id = _HEAD.unpack(await reader.readexactly(_HEAD.size))
                    await reader.readexactly(size - 4)
                    if correlation_id == QUESTION + number:
                        return "answered"
        except TimeoutError:
            return "parked"
        except (asyncio.IncompleteReadError, OSError):
            return "refused"


async def _disconnect(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
