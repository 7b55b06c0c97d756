"""Mutated TLS records and truncated handshakes, on the socket itself."""

import asyncio
import ssl
import struct
from contextlib import suppress
from random import Random

from tools.fuzz.attack import Streams, question
from tools.fuzz.mutate import EDGES
from tools.fuzz.secured.exchanges import BrokenExchanges, loopback_address

RECORD_HEAD_BYTES = 5
RECORD_TYPES = (20, 21, 22, 23)
STAGES = ("hello", "finished", "data")
"""Which flight of the client is broken: its first one, the one that ends the handshake, or a request."""
RECEIVED_BYTES_MAX = 1 << 16


def broken_records(chance: Random, flight: bytes) -> bytes:
    """Records with changed bytes, sizes, types or boundaries, or cut off."""
    body = bytearray(flight)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        if len(body) <= RECORD_HEAD_BYTES:
            break
        at = chance.randrange(len(body))
        match chance.randrange(9):
            case 0 | 1:
                body[at] ^= 1 << chance.randrange(8)
            case 2:
                value = chance.choice(EDGES)
                body[at : at + len(value)] = value
            case 3:
                del body[at:]
            case 4:
                body[3:5] = struct.pack(">H", chance.choice((0, 1, 2, 16384, 16385, 18432, 65535)))
            case 5:
                body[0] = chance.choice((0, 20, 21, 22, 23, 24, 128, 255))
            case 6:
                del body[at : at + chance.randint(1, 64)]
            case 7:
                body[at:at] = chance.randbytes(chance.choice((1, 16, 300)))
            case _:
                # The same message in smaller records.
                size = len(body) - RECORD_HEAD_BYTES
                part = chance.randint(1, size)
                message, head = bytes(body[RECORD_HEAD_BYTES:]), bytes(body[:3])
                body[:] = b"".join(
                    head + struct.pack(">H", len(message[i : i + part])) + message[i : i + part]
                    for i in range(0, size, part)
                )
    return bytes(body)


class _Client:
    """The client's side of one TLS connection, whose bytes can be changed."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")

    def received(self, data: bytes) -> None:
        self._incoming.write(data)

    def handshake(self) -> bool:
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def write(self, data: bytes) -> None:
        self._object.write(data)

    def read(self) -> bytes:
        """Clear bytes of the server."""
        with suppress(ssl.SSLError):
            return self._object.read(RECEIVED_BYTES_MAX)
        return b""

    def flight(self) -> bytes:
        return self._outgoing.read()


class TlsRecords(BrokenExchanges):
    """Connections with a broken flight each; violations are bytes of the server that are not TLS records."""

    def __init__(self, port: int, context: ssl.SSLContext, count: int, seed: int) -> None:
        super().__init__(count, seed)
        self._port = port
        self._context = context

    async def connect(self) -> Streams:
        address = loopback_address(self.chance)
        return await asyncio.open_connection("127.0.0.1", self._port, local_addr=address)

    async def exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        client, chance = _Client(self._context), self.chance
        stage = chance.choice(STAGES)
        client.handshake()
        flights = 0
        while stage != "hello" or flights:
            # Valid up to the flight that is to be broken.
            is_done = flights > 0 and client.handshake()
            if stage == "data" and is_done:
                writer.write(client.flight())
                client.write(question(1))
                break
            flight = client.flight()
            if stage == "finished" and is_done:
                writer.write(broken_records(chance, flight))
                return await self._reaction(reader, client)
            writer.write(flight)
            flights += 1
            data = await reader.read(RECEIVED_BYTES_MAX)
            if not data:
                return "refused"
            client.received(data)
        writer.write(broken_records(chance, client.flight()))
        if chance.random() < 0.1:
            # Truncated: the client ends its side at once.
            writer.write_eof()
        return await self._reaction(reader, client)

    async def _reaction(self, reader: asyncio.StreamReader, client: _Client) -> str:
        outcome = "refused"
        # What was received before ended with a whole record.
        while data := await reader.read(RECEIVED_BYTES_MAX):
            is_record = data[0] in RECORD_TYPES and data[1:2] in (b"", b"\x03")
            if outcome == "refused" and not is_record:
                self.violations.append(f"no TLS record: {data[:40]!r}")
            client.received(data)
            if client.read():
                return "answered"
            outcome = "refused with an alert"
        return outcome
