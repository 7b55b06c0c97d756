"""A service whose responses are scripted by its requests, and a client for raw frames.

The first byte of a frame selects the behaviour, the rest is its argument:
    e  respond with it now             t  respond with it at the end of the turn
    l  respond with it when released   h  the same, and hold the connection
    n  no response                     x  close the connection
    k  keep the memory of a large frame; respond with it when released
    m  respond now, and throttle the client for N ms
    b  respond with N bytes            f  respond with N bytes of a file
"""

import asyncio
import contextlib
import ssl
import struct
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from runnel.disk.os_files import OsFiles
from runnel.net.admission import Admission, ListenerLimits
from runnel.net.listener import Listener
from runnel.ports.disk import FileSlice
from runnel.ports.service import CloseConnection, Loan, Reply, Session
from runnel.security.principal_mapping import PrincipalMapping
from runnel.tls.context import client_context, server_context
from runnel.tls.material import Material, load_material
from runnel.tls.server import ServerTls
from runnel.tls.settings import TlsSettings
from tools.certificates import CertificateAuthority

USES_TLS = False
"""Whether worlds use TLS."""


@cache
def certificates() -> tuple[TlsSettings, Material]:
    ca = CertificateAuthority()
    node = ca.issue("broker")
    settings = TlsSettings(
        keystore_type="PEM",
        keystore_key=node.key_pem().decode(),
        keystore_certificate_chain=node.chain_pem().decode(),
        truststore_type="PEM",
        truststore_certificates=ca.pem(),
    )
    return settings, load_material(settings, time.time())


def server_tls(rules: str = "DEFAULT", **changes: str) -> ServerTls:
    settings, material = certificates()
    return ServerTls(server_context(replace(settings, **changes), material), PrincipalMapping(rules))


@cache
def client_tls() -> ssl.SSLContext:
    return client_context(*certificates())


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


class ScriptedService:
    """Responds as scripted by each request."""

    def __init__(self, file: Path | None = None) -> None:
        self.served: list[bytes] = []
        self.turns = 0
        self.is_ending = False
        self.later: list[tuple[Reply, bytes]] = []
        self.gone: list[Session] = []
        self.kept: list[tuple[Reply, memoryview]] = []
        self.loans: list[Loan] = []
        self._keeps = False
        self._at_turn_end: list[tuple[Reply, bytes]] = []
        self._file = OsFiles().open(str(file)) if file else None

    def serve(
        self,
        buffer: memoryview,
        start: int,
        after: int,
        end: int,
        session: Session,
        replies: list[Reply],
        count_max: int,
    ) -> int:
        assert count_max > 0
        reply = self.serve_frame(buffer[start:after], session)
        if reply is not None:
            replies.append(reply)
        return after

    def serve_frame(self, request: memoryview, session: Session) -> Reply | None:
        data = bytes(request)
        self.served.append(data[:64])
        verb, rest = chr(data[0]), data[1:]
        reply = Reply()
        match verb:
            case "e":
                fill(reply, rest)
            case "m":
                fill(reply, rest)
                session.throttle_ms = int(rest)
            case "t":
                self._at_turn_end.append((reply, rest))
            case "l" | "h":
                reply.mutes_connection = verb == "h"
                self.later.append((reply, rest))
            case "k":
                self._keeps = True
                self.kept.append((reply, request))
            case "n":
                return None
            case "x":
                raise CloseConnection("as requested")
            case "b":
                fill(reply, bytes(int(rest)))
            case "f":
                self._fill_from_file(reply, int(rest))
        return reply

    def _fill_from_file(self, reply: Reply, length: int) -> None:
        assert self._file is not None
        head = struct.pack(">i", length)
        reply.fill([head, FileSlice(self._file, 0, length)], len(head))

    def finish_turn(self, loan: Loan | None = None) -> None:
        self.turns += 1
        if self._keeps:
            assert loan is not None
            loan.borrow()
            self.loans.append(loan)
            self._keeps = False
        waiting, self._at_turn_end = self._at_turn_end, []
        for reply, body in waiting:
            fill(reply, body)

    def ending(self) -> None:
        self.is_ending = True

    def closed(self, session: Session) -> None:
        self.gone.append(session)

    def release(self, index: int = 0) -> None:
        fill(*self.later.pop(index))

    def release_kept(self) -> None:
        reply, memory = self.kept.pop(0)
        fill(reply, bytes(memory[1:]))
        self.loans.pop(0).done()

    def close(self) -> None:
        self._file = None


def fill(reply: Reply, body: bytes) -> None:
    answer = frame(body)
    reply.fill([answer], len(answer))


class Client:
    """A client connection for raw frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, *bodies: bytes) -> None:
        self.writer.write(b"".join(map(frame, bodies)))

    async def receive(self) -> bytes:
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    async def ask(self, body: bytes) -> bytes:
        self.send(body)
        return await self.receive()

    async def is_closed(self) -> bool:
        """True if the next read returns end of file."""
        try:
            return await self.reader.read(1) == b""
        except ConnectionResetError:
            return True

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


class World:
    """A listener with a scripted service, and its clients, which are closed at the end."""

    def __init__(
        self,
        limits: ListenerLimits | None = None,
        file: Path | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        self.service = ScriptedService(file)
        if tls is None and USES_TLS:
            tls = server_tls()
        self.listener = Listener(self.service, "TEST", Admission(limits), tls)
        self.port = self.listener.listen("127.0.0.1", 0)
        self.clients: list[Client] = []

    async def __aenter__(self) -> "World":
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self.clients:
            await client.close()
        await self.listener.close(grace_seconds=0)
        self.service.close()

    async def connect(self) -> Client:
        tls = client_tls() if self.listener.tls is not None else None
        options: dict[str, Any] = {}
        if tls is not None:
            # A connection that is throttled does not read that its client closes it.
            options = {"ssl": tls, "server_hostname": "localhost", "ssl_shutdown_timeout": 1.0}
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port, **options))
        self.clients.append(client)
        return client

    async def until(self, condition) -> None:
        """Run the event loop until a condition holds."""
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.005)
