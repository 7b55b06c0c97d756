"""TLS connections: the same responses as in clear text, of which nothing is on the wire."""

import asyncio
import contextlib
import fcntl
import itertools
import os
import socket
import ssl
import sys
import termios
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.disk.os_files import OsFile
from runnel.net import connection, listener
from runnel.net.admission import ListenerLimits
from runnel.net.tls_connection import TlsConnection
from runnel.ports.disk import FileSlice
from runnel.security.principal import ANONYMOUS
from runnel.tls.context import client_context
from runnel.tls.endpoint import SEALED_BYTES, TlsEndpoint
from runnel.tls.material import Material
from runnel.tls.server import ServerTls
from runnel.tls.settings import TlsSettings
from tests.net.scripted import World, certificates, client_tls, frame, server_tls

MARK = b"a secret that must not be seen on the wire "


class SealedClient:
    """A TLS client that decides where its bytes are cut."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, steps: list[int]) -> None:
        self._reader, self._writer = reader, writer
        self._steps = itertools.cycle(steps)
        self._clear = bytearray()
        self.endpoint = TlsEndpoint(client_tls(), is_server=False, server_name="localhost")

    @classmethod
    async def connect(cls, port: int, steps: list[int]) -> "SealedClient":
        client = cls(*await asyncio.open_connection("127.0.0.1", port), steps)
        while not client.endpoint.handshake():
            await client.write(client.endpoint.output())
            client.endpoint.received(await client._reader.read(next(client._steps)))
        await client.write(client.endpoint.output())
        return client

    async def write(self, data: bytes) -> None:
        position = 0
        while position < len(data):
            step = next(self._steps)
            self._writer.write(data[position : position + step])
            await self._writer.drain()
            position += step
            await asyncio.sleep(0)

    async def send(self, stream: bytes) -> None:
        position = 0
        while position < len(stream):
            step = next(self._steps)
            self.endpoint.seal(stream[position : position + step])
            position += step
        await self.write(self.endpoint.output())

    async def receive(self) -> bytes:
        size = int.from_bytes(await self._exactly(4), "big")
        return await self._exactly(size)

    async def ended(self) -> bool:
        """Whether the server ends the connection as TLS demands."""
        while not self.endpoint.is_ended:
            data = await self._reader.read(1 << 16)
            if not data:
                return False
            self.endpoint.received(data)
            self.endpoint.read_into(memoryview(bytearray(100)))
        return True

    def close(self) -> None:
        self._writer.transport.abort()

    async def _exactly(self, size: int) -> bytes:
        room = memoryview(bytearray(1 << 16))
        while len(self._clear) < size:
            count = self.endpoint.read_into(room)
            self._clear += room[:count]
            if not count:
                data = await self._reader.read(1 << 18)
                assert data, "the server closed the connection"
                self.endpoint.received(data)
        piece = bytes(self._clear[:size])
        del self._clear[:size]
        return piece


sizes = st.sampled_from([0, 1, 50, 5_000, 16_380, 65_531, 65_540, 140_000, 262_144, 300_000])
requests = st.lists(st.tuples(st.sampled_from("etlhn"), sizes), min_size=1, max_size=12)


@settings(max_examples=25)
@given(requests, st.lists(st.sampled_from([1_000, 16_384, 16_401, 70_001, 400_000]), min_size=1, max_size=5))
def test_responses_do_not_depend_on_records_and_segments(asked, steps):
    bodies = [verb.encode() + bytes([index % 251]) * size for index, (verb, size) in enumerate(asked)]
    expected = [body[1:] for body in bodies if not body.startswith(b"n")]

    async def release(world: World) -> None:
        while True:
            while world.service.later:
                world.service.release(-1)
            await asyncio.sleep(0.001)

    async def scenario() -> None:
        async with World(tls=server_tls()) as world:
            client = await SealedClient.connect(world.port, steps)
            releasing = asyncio.create_task(release(world))
            sending = asyncio.create_task(client.send(b"".join(map(frame, bodies))))
            async with asyncio.timeout(60):
                assert [await client.receive() for _ in expected] == expected
                await sending
            releasing.cancel()
            await world.until(lambda: len(world.service.served) == len(bodies))
            assert world.listener.memory.reserved_bytes == 0
            client.close()

    asyncio.run(scenario())


def test_a_stream_in_single_bytes(run):
    async def scenario() -> None:
        async with World(tls=server_tls()) as world:
            client = await SealedClient.connect(world.port, [1])
            await client.send(frame(b"eone") + frame(b"ttwo"))
            assert [await client.receive(), await client.receive()] == [b"one", b"two"]
            client.close()

    run(scenario())


def test_frames_of_megabytes_in_a_row(run, monkeypatch):
    """The endpoint keeps the memory of the most that it ever held, which is little of the next frame."""
    held: list[int] = []
    received = TlsEndpoint.received

    def noted(endpoint: TlsEndpoint, data: bytes | memoryview) -> None:
        received(endpoint, data)
        held.append(endpoint._incoming.pending)

    async def scenario() -> None:
        async with World(tls=server_tls()) as world:
            clients = [await world.connect() for _ in range(3)]
            monkeypatch.setattr(TlsEndpoint, "received", noted)
            bodies = [bytes([65 + number]) * 1_500_000 for number in range(3)]
            for client in clients:
                client.send(*[b"e" + body for body in bodies], b"emark")
            for client in clients:
                assert [await client.receive() for _ in range(4)] == [*bodies, b"mark"]
            assert world.listener.memory.reserved_bytes == 0

    run(scenario())
    # Of its own frame it may have had the start of a record.
    assert max(held) <= SEALED_BYTES + 17 * 1024


def test_a_damaged_record_in_a_frame_of_megabytes(run, caplog):
    async def scenario() -> None:
        async with World(tls=server_tls()) as world:
            good, bad = await world.connect(), await SealedClient.connect(world.port, [1_000_000])
            bad.endpoint.seal(frame(b"e" + bytes(2_000_000)))
            sealed = bytearray(bad.endpoint.output())
            sealed[1_000_000] ^= 1
            await bad.write(bytes(sealed))
            with (
                contextlib.suppress(ConnectionResetError),
                pytest.raises(ssl.SSLError, match="BAD_RECORD_MAC"),
            ):
                await bad.ended()
            bad.close()
            assert await good.ask(b"eone") == b"one"
            assert world.service.served == [b"eone"]
            assert world.listener.memory.reserved_bytes == 0

    run(scenario())
    assert "TLS failed: " in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("is_orderly", [False, True])
def test_the_peer_ends_in_a_frame_of_megabytes(run, is_orderly):
    async def scenario() -> None:
        async with World(tls=server_tls()) as world:
            client = await SealedClient.connect(world.port, [1_000_000])
            client.endpoint.seal(frame(b"e" + bytes(2_000_000))[:1_200_000])
            if is_orderly:
                client.endpoint.close()
            await client.write(client.endpoint.output())
            if not is_orderly:
                client.close()
            await world.until(lambda: not world.listener.connections)
            assert world.service.served == []
            assert world.listener.memory.reserved_bytes == 0
            client.close()

    run(scenario())


class Relay:
    """Passes bytes on between a client and a server, and keeps a copy."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._ended = asyncio.Event()
        self.seen = bytearray()

    async def listen(self) -> int:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        await asyncio.gather(self._pass(reader, back), self._pass(there, writer), return_exceptions=True)
        for one in (back, writer):
            one.close()
            with contextlib.suppress(OSError):
                await one.wait_closed()
        self._ended.set()

    async def _pass(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(1 << 18):
                self.seen += data
                target.write(data)
                await target.drain()
        finally:
            target.close()

    async def close(self) -> None:
        """Wait until the client has closed its connection, and both connections are closed."""
        self._server.close()
        await self._ended.wait()


@pytest.mark.parametrize("is_cold", [False, True])
def test_no_clear_text_is_on_the_wire(run, tmp_path: Path, monkeypatch, is_cold):
    """Requests, small responses, and large slices of files, from the event loop or from a thread."""
    content = MARK * 25_000
    path = tmp_path / "segment"
    path.write_bytes(content)
    readers: set[str] = set()
    pread = os.pread

    def recorded(*arguments: int) -> bytes:
        readers.add(threading.current_thread().name)
        return pread(*arguments)

    def forbidden(*_: object) -> int:
        raise AssertionError("sendfile on a TLS connection")

    monkeypatch.setattr(os, "pread", recorded)
    monkeypatch.setattr(os, "sendfile", forbidden)
    monkeypatch.setattr(OsFile, "is_resident", lambda *_: not is_cold)

    async def scenario() -> bytes:
        async with World(file=path, tls=server_tls()) as world:
            relay = Relay(world.port)
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", await relay.listen(), ssl=client_tls(), server_hostname="localhost"
            )
            writer.write(frame(b"e" + MARK) + frame(b"f%d" % len(content)) + frame(b"e" + MARK * 9_000))
            for expected in (MARK, content, MARK * 9_000):
                size = int.from_bytes(await reader.readexactly(4), "big")
                assert await reader.readexactly(size) == expected
            writer.transport.abort()
            await relay.close()
            await asyncio.sleep(0.01)
            return bytes(relay.seen)

    seen = run(scenario())
    assert len(seen) > 34_000 * len(MARK)
    assert MARK[:16] not in seen
    assert (readers == {"sender"}) is is_cold


def unread_bytes(connected: socket.socket) -> int:
    return int.from_bytes(fcntl.ioctl(connected, termios.FIONREAD, bytes(4)), sys.byteorder)


def watched(name: str, connection: TlsConnection, uses: list[tuple[str, bool]]) -> Callable[..., object]:
    """A method of the endpoint that notes whether a thread was sending."""
    method = getattr(TlsEndpoint, name)

    def use(endpoint: TlsEndpoint, *arguments: object) -> object:
        if endpoint is connection._endpoint:
            uses.append((name, connection._outbox.is_away))
        return method(endpoint, *arguments)

    return use


def test_nothing_is_read_while_a_thread_sends(run, tmp_path: Path, monkeypatch):
    """A read that has something to send may pass a response to a thread, which then owns the endpoint."""
    content = bytes(index % 253 for index in range(300_000))
    path = tmp_path / "segment"
    path.write_bytes(content)
    monkeypatch.setattr(OsFile, "is_resident", lambda *_: False)
    uses: list[tuple[str, bool]] = []

    async def scenario() -> None:
        async with World(file=path, tls=server_tls()) as world:
            world.listener.sealed = memoryview(bytearray(20_000))
            client = await SealedClient.connect(world.port, [1_000_000])
            await client.send(frame(b"eone"))
            assert await client.receive() == b"one"
            (connection,) = world.listener.connections
            assert isinstance(connection, TlsConnection)
            outbox, file = connection._outbox, world.service._file
            assert file is not None
            request = frame(b"n" * 400_000)
            await client.send(request[:100_000])
            await world.until(lambda: connection._large is not None and connection._large.received > 99_000)
            connection._pause()
            sending = asyncio.create_task(client.send(request[100_000:] + frame(b"etwo")))
            await world.until(lambda: unread_bytes(connection._socket) > 50_000)
            for name in ("received", "read_into", "handshake", "close"):
                monkeypatch.setattr(TlsEndpoint, name, watched(name, connection, uses))
            # As left by a socket that has become writable just now; the endpoint has a message, too.
            connection._endpoint.seal(frame(b"message"))
            outbox._keep(len(content).to_bytes(4, "big"))
            outbox._keep(FileSlice(file, 0, len(content)))
            connection._resume()
            connection.readable()
            assert outbox.is_away
            assert await client.receive() == b"message"
            assert await client.receive() == content
            await sending
            assert await client.receive() == b"two"
            assert world.service.served[1:] == [b"n" * 64, b"etwo"]
            client.close()

    run(scenario())
    assert ("read_into", False) in uses
    assert not [name for name, is_away in uses if is_away]


def test_many_large_responses_to_clients_that_read_late(run, tmp_path: Path):
    content = bytes(index % 253 for index in range(600_001))
    path = tmp_path / "segment"
    path.write_bytes(content)

    async def scenario() -> None:
        async with World(file=path, tls=server_tls()) as world:
            clients = [await world.connect() for _ in range(4)]
            for client in clients:
                client.send(*[b"f600001", b"emark"] * 4)
            await world.until(lambda: len(world.service.served) == 32)
            for client in clients:
                for _ in range(4):
                    assert await client.receive() == content
                    assert await client.receive() == b"mark"

    run(scenario())


def test_clear_text_is_refused_with_a_hint(run, caplog):
    async def scenario() -> None:
        async with World(tls=server_tls()) as world:
            reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
            writer.write(frame(b"eclear"))
            assert await reader.read() == b""
            writer.close()
            good = await world.connect()
            assert await good.ask(b"eone") == b"one"
            assert world.service.served == [b"eone"]

    run(scenario())
    assert "it does not use TLS, which this listener requires" in caplog.text


@pytest.mark.parametrize(
    "first", [b"\x16\x03\x01\x00\x05hello", b"\x16" + bytes(300), b"\x16\x03\x01\xff\xff" + bytes(70_000)]
)
def test_garbage_instead_of_a_handshake(run, caplog, first):
    async def scenario() -> None:
        async with World(tls=server_tls()) as world:
            reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
            good = await world.connect()
            writer.write(first)
            with contextlib.suppress(ConnectionResetError):
                await reader.read()
            writer.close()
            assert await good.ask(b"eone") == b"one"
            await world.until(lambda: len(world.listener.connections) == 1)
            assert not world.listener.handshaking

    run(scenario())
    assert "TLS failed: " in caplog.text
    assert "Traceback" not in caplog.text


def test_garbage_after_the_handshake(run, caplog):
    async def scenario() -> None:
        async with World(tls=server_tls()) as world:
            good, bad = await world.connect(), await SealedClient.connect(world.port, [100_000])
            await bad.send(frame(b"eone"))
            assert await bad.receive() == b"one"
            await bad.write(b"\x17\x03\x03\x00\x40" + bytes(64))
            with pytest.raises(ssl.SSLError, match="ALERT_BAD_RECORD_MAC"):
                await bad.ended()
            bad.close()
            assert await good.ask(b"eone") == b"one"

    run(scenario())
    assert "TLS failed: " in caplog.text
    assert "Traceback" not in caplog.text


def test_a_handshake_that_stalls_is_ended(run, caplog, monkeypatch):
    monkeypatch.setattr(listener, "HANDSHAKE_SECONDS", 0.2)

    async def scenario() -> None:
        async with World(ListenerLimits(idle_max_ms=4_000), tls=server_tls()) as world:
            silent, begun = [await asyncio.open_connection("127.0.0.1", world.port) for _ in range(2)]
            endpoint = TlsEndpoint(client_tls(), is_server=False, server_name="localhost")
            endpoint.handshake()
            begun[1].write(endpoint.output()[:100])
            good = await world.connect()
            for reader, writer in (silent, begun):
                assert await reader.read() == b""
                writer.close()
            assert await good.ask(b"eone") == b"one"
            assert not world.listener.handshaking

    run(scenario())
    assert caplog.text.count("the TLS handshake timed out") == 2


def test_unfinished_handshakes_are_limited(run, monkeypatch):
    monkeypatch.setattr(listener, "HANDSHAKES_MAX", 3)

    async def scenario() -> None:
        async with World(tls=server_tls()) as world:
            unfinished = [await asyncio.open_connection("127.0.0.1", world.port) for _ in range(5)]
            for reader, _ in unfinished[:2]:
                assert await reader.read() == b""
            good = await world.connect()
            assert await good.ask(b"eone") == b"one"
            assert len(world.listener.handshaking) <= 3
            for _, writer in unfinished:
                writer.close()

    run(scenario())


def test_a_storm_of_handshakes_is_served_in_parts(run, monkeypatch):
    monkeypatch.setattr(listener, "HANDSHAKES_PER_ITERATION", 1)

    async def scenario() -> None:
        async with World(tls=server_tls()) as world:
            clients = await asyncio.gather(*(world.connect() for _ in range(30)))
            answers = await asyncio.gather(*(client.ask(b"eone") for client in clients))
            assert answers == [b"one"] * 30
            assert not world.listener.handshaking

    run(scenario())


def test_the_peer_closes_its_side_after_its_requests(run):
    async def scenario() -> None:
        async with World(tls=server_tls()) as world:
            client = await SealedClient.connect(world.port, [100_000])
            client.endpoint.seal(frame(b"eone") + frame(b"ttwo"))
            client.endpoint.close()
            await client.write(client.endpoint.output())
            assert [await client.receive(), await client.receive()] == [b"one", b"two"]
            await world.until(lambda: not world.listener.connections)
            client.close()

    run(scenario())


def test_the_peer_closes_its_side_after_requests_of_several_turns(run, monkeypatch):
    # A turn ends after each request.
    monkeypatch.setattr(connection, "SERVE_SECONDS_MAX", 0.0)

    async def scenario() -> None:
        async with World(tls=server_tls()) as world:
            client = await SealedClient.connect(world.port, [100_000])
            client.endpoint.seal(frame(b"eone") + frame(b"etwo") + frame(b"ethree"))
            client.endpoint.close()
            await client.write(client.endpoint.output())
            assert [await client.receive() for _ in range(3)] == [b"one", b"two", b"three"]
            await world.until(lambda: not world.listener.connections)
            client.close()

    run(scenario())


def test_the_listener_ends_connections_as_tls_demands(run):
    async def scenario() -> None:
        async with World(tls=server_tls()) as world:
            client = await SealedClient.connect(world.port, [100_000])
            await client.send(frame(b"eone"))
            assert await client.receive() == b"one"
            await world.listener.close()
            assert await client.ended()
            client.close()

    run(scenario())


def test_the_certificate_names_the_principal(run):
    async def scenario() -> None:
        rules = "RULE:^CN=(.*)$/$1/U"
        async with World(tls=server_tls(rules, client_auth="required")) as world:
            client = await world.connect()
            assert await client.ask(b"eone") == b"one"
            (connection,) = world.listener.connections
            assert str(connection.session.principal) == "User:BROKER"
        async with World(tls=server_tls()) as world:
            client = await world.connect()
            assert await client.ask(b"eone") == b"one"
            (connection,) = world.listener.connections
            assert connection.session.principal == ANONYMOUS

    run(scenario())


def test_a_certificate_without_a_rule_is_not_authenticated(run, caplog):
    async def scenario() -> None:
        async with World(tls=server_tls("RULE:^CN=alice$/alice/", client_auth="requested")) as world:
            client = await world.connect()
            client.send(b"eone")
            assert await client.is_closed()
            assert world.service.served == []

    run(scenario())
    assert "authentication failed: no rule of ssl.principal.mapping.rules matches 'CN=broker'" in caplog.text


def bare_client() -> ssl.SSLContext:
    """A client that trusts the CA and has no certificate."""
    return client_context(TlsSettings(), Material(trusted=certificates()[1].trusted))


@pytest.mark.parametrize("auth", ["requested", "required"])
def test_a_client_without_a_certificate(run, caplog, auth):
    async def scenario() -> None:
        async with World(tls=server_tls(client_auth=auth)) as world:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", world.port, ssl=bare_client(), server_hostname="localhost"
            )
            writer.write(frame(b"eone"))
            if auth == "requested":
                assert await reader.readexactly(7) == frame(b"one")
                (connection,) = world.listener.connections
                assert connection.session.principal == ANONYMOUS
            else:
                with pytest.raises((ssl.SSLError, ConnectionResetError, asyncio.IncompleteReadError)):
                    await reader.readexactly(7)
                assert world.service.served == []
            writer.close()

    run(scenario())
    assert ("it sent no certificate, which is required here" in caplog.text) is (auth == "required")


def test_new_connections_use_the_new_context(run):
    async def scenario() -> None:
        tls: ServerTls = server_tls()
        async with World(tls=tls) as world:
            old = await world.connect()
            assert await old.ask(b"eone") == b"one"
            tls.context = server_tls(enabled_protocols=("TLSv1.2",)).context  # type: ignore[arg-type]
            new = await world.connect()
            assert await new.ask(b"etwo") == b"two"
            assert await old.ask(b"ethree") == b"three"
            versions = [each.writer.get_extra_info("ssl_object").version() for each in (old, new)]
            assert versions == ["TLSv1.3", "TLSv1.2"]

    run(scenario())


def test_renegotiation_is_refused(run):
    """A client of TLS 1.2 cannot make the broker repeat the costly part of a connection."""

    async def scenario() -> None:
        async with World(tls=server_tls()) as world:
            assert world.listener.tls is not None
            assert world.listener.tls.context.options & ssl.OP_NO_RENEGOTIATION

    run(scenario())
