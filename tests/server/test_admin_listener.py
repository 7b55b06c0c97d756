"""The admin listener: nothing that its clients send, or do not send, keeps it from serving the others."""

import asyncio
import http.client
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from runnel.client.loop_thread import LoopThread, fastest_loop
from runnel.server import admin_listener
from runnel.server.admin_listener import AdminListener, Page, Query
from tests.observe.scraping import get

BIG = b"x" * 1_000 + b"\n"


class Served:
    """An admin listener on an event loop of its own."""

    def __init__(self) -> None:
        self.thread = LoopThread("admin", fastest_loop)
        self.asked: list[dict[str, list[str]]] = []
        self.is_held = threading.Event()
        self.release = threading.Event()
        self.listener = self.thread.call(self._made())
        self.port = self.thread.call(self.listener.listen("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.port}"

    async def _made(self) -> AdminListener:
        return AdminListener(
            {
                "/": self._echo,
                "/big": lambda query: Page(200, "text/plain", [BIG] * 20_000),
                "/later": self._later,
                "/parts": lambda query: (429, "text/csv", iter([b"", b"a,", b"b"])),
                "/bug": self._bug,
                "/late-bug": lambda query: Page(200, "text/plain", self._failing()),
                "/held": self._held,
            }
        )

    def _echo(self, query: Query) -> Page:
        self.asked.append(dict(query))
        return Page(200, "text/plain", b"hello\n")

    async def _later(self, query: Query) -> Page:
        await asyncio.sleep(0.01)
        return Page(503, "text/plain", b"later\n")

    def _bug(self, query: Query) -> Page:
        raise ValueError("a bug")

    def _failing(self) -> Iterator[bytes]:
        yield b"begun"
        raise ValueError("a late bug")

    async def _held(self, query: Query) -> Page:
        self.is_held.set()
        while not self.release.is_set():
            await asyncio.sleep(0.01)
        return Page(200, "text/plain", b"held\n")

    def close(self) -> None:
        self.release.set()
        self.thread.call(self.listener.close())
        self.thread.close()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)


@pytest.fixture
def served() -> Iterator[Served]:
    listener = Served()
    yield listener
    listener.close()


def read_all(connected: socket.socket) -> bytes:
    """What the listener sends until it closes the connection."""
    received = b""
    try:
        while data := connected.recv(1 << 16):
            received += data
    except ConnectionResetError:
        pass
    return received


def test_pages_and_their_statuses(served: Served) -> None:
    status, headers, body = get(served.address, "/?a=1&a=2&b")
    assert (status, body, headers["Content-Type"]) == (200, b"hello\n", "text/plain")
    assert served.asked == [{"a": ["1", "2"], "b": [""]}]
    assert get(served.address, "/later")[::2] == (503, b"later\n")
    assert get(served.address, "/parts")[::2] == (429, b"a,b")
    status, _, body = get(served.address, "/nothing")
    assert status == 404
    assert b"/later" in body


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 421),
        ("evil.example:9644", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost", 200),
        ("LOCALHOST:9644", 200),
        ("127.0.0.1:9644", 200),
        ("[::1]:9644", 200),
        (None, 200),
    ],
)
def test_names_of_others_do_not_lead_to_a_local_listener(
    served: Served, host: str | None, status: int
) -> None:
    """A web page may have its own name resolved to this machine."""
    header = b"" if host is None else f"Host: {host}\r\n".encode()
    with served.connect() as connected:
        connected.sendall(b"GET / HTTP/1.1\r\n" + header + b"Connection: close\r\n\r\n")
        assert read_all(connected).startswith(f"HTTP/1.1 {status} ".encode())


def test_head_has_the_length_and_no_body(served: Served) -> None:
    status, headers, body = get(served.address, "/big", "HEAD")
    assert (status, headers["Content-Length"], body) == (200, str(20_000 * len(BIG)), b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_are_refused(served: Served, method: str) -> None:
    status, headers, _ = get(served.address, "/", method)
    assert (status, headers["Allow"], headers["Connection"]) == (405, "GET, HEAD", "close")
    assert not served.asked


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(600) + b"\r\n\r\n", 400),
        (b"\x00\x00\x00\x20\x00\x12\x00\x03" + bytes(24) + b"\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 2_000 + b"\r\n", 431),
        (b"GET /" + b"x" * 5_000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"x" * 100_000, 431),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"GET / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 400),
    ],
)
def test_garbage_is_answered_and_closes_its_connection(served: Served, data: bytes, status: int) -> None:
    with served.connect() as connected:
        connected.sendall(data)
        received = read_all(connected)
    # The rest of what was sent may reset the connection before the response is read.
    assert not received or received.startswith(b"HTTP/1.1 %d " % status)
    assert get(served.address, "/")[0] == 200


def test_an_incomplete_request_and_none_at_all(served: Served) -> None:
    with served.connect() as connected:
        connected.sendall(b"GET / HTT")
        connected.shutdown(socket.SHUT_WR)
        assert read_all(connected).startswith(b"HTTP/1.1 400 ")
    with served.connect() as connected:
        connected.shutdown(socket.SHUT_WR)
        assert read_all(connected) == b""
    assert get(served.address, "/")[0] == 200


def test_requests_behind_each_other_are_answered_in_order(served: Served) -> None:
    with served.connect() as connected:
        connected.sendall(
            b"GET /?n=1 HTTP/1.1\r\n\r\nGET /later HTTP/1.1\r\n\r\nHEAD /?n=2 HTTP/1.1\r\n\r\n"
            b"GET /?n=3 HTTP/1.1\r\nConnection: close\r\n\r\nGET /?n=4 HTTP/1.1\r\n\r\n"
        )
        received = read_all(connected)
    assert re.findall(rb"HTTP/1.1 (\d+)", received) == [b"200", b"503", b"200", b"200"]
    assert [query["n"] for query in served.asked] == [["1"], ["2"], ["3"]]


def test_a_connection_may_be_used_again(served: Served) -> None:
    connection = http.client.HTTPConnection(served.address, timeout=20)
    for _ in range(3):
        connection.request("GET", "/")
        assert connection.getresponse().read() == b"hello\n"
    connection.close()


def test_a_request_in_single_bytes_is_served(served: Served) -> None:
    with served.connect() as connected:
        for byte in b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n":
            connected.sendall(bytes([byte]))
        assert read_all(connected).endswith(b"hello\n")


def test_clients_that_send_nothing_are_closed_after_a_while(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_listener, "REQUEST_SECONDS", 0.2)
    with served.connect() as connected:
        connected.sendall(b"GET / HTTP/1.1\r\nSlow: ")
        assert read_all(connected).startswith(b"HTTP/1.1 408 ")


def test_a_client_that_does_not_receive_is_closed_after_a_while(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_listener, "SEND_SECONDS", 0.3)
    with served.connect() as connected:
        connected.sendall(b"GET /big HTTP/1.1\r\n\r\n")
        deadline = time.monotonic() + 20
        while served.listener._connections and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not served.listener._connections
    assert get(served.address, "/")[0] == 200


def test_a_large_page_arrives_whole(served: Served) -> None:
    _, headers, body = get(served.address, "/big")
    assert body == BIG * 20_000
    assert int(headers["Content-Length"]) == len(body)


@pytest.mark.parametrize("path", ["/bug", "/late-bug"])
def test_a_bug_is_answered_and_reported_once(
    served: Served, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    for _ in range(3):
        status, _, body = get(served.address, path)
        assert status == 500
        assert b"a bug" not in body
    assert get(served.address, "/")[0] == 200
    assert len([record for record in caplog.records if record.exc_info]) == 1


def test_idle_connections_give_way(served: Served) -> None:
    idle = [served.connect() for _ in range(admin_listener.CONNECTIONS_MAX + 10)]
    # Those that came first were closed for those that came last, and for this one.
    assert get(served.address, "/")[0] == 200
    assert idle[0].recv(1) == b""
    idle[-1].sendall(b"GET / HTTP/1.1\r\n\r\n")
    assert idle[-1].recv(100).startswith(b"HTTP/1.1 200")
    for connected in idle:
        connected.close()


def test_connections_that_are_served_do_not_give_way(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_listener, "CONNECTIONS_MAX", 1)
    with served.connect() as held:
        held.sendall(b"GET /held HTTP/1.1\r\nConnection: close\r\n\r\n")
        assert served.is_held.wait(20)
        with served.connect() as refused:
            assert read_all(refused) == b""
        served.release.set()
        assert read_all(held).endswith(b"held\n")


def test_a_port_in_use_is_reported(served: Served) -> None:
    with pytest.raises(OSError):
        served.thread.call(served.listener.listen("127.0.0.1", served.port))


def test_closing_ends_connections_that_wait(served: Served) -> None:
    with served.connect() as idle, served.connect() as held:
        held.sendall(b"GET /held HTTP/1.1\r\n\r\n")
        assert served.is_held.wait(20)
        served.thread.call(served.listener.close())
        assert read_all(idle) == read_all(held) == b""


class Hasty(AdminListener):
    """Is closed in the moment in which a connection is accepted."""

    def _connected(
        self, hosts: frozenset[str] | None, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        super()._connected(hosts, reader, writer)
        self.abort()


def test_a_connection_that_is_accepted_in_the_last_moment_is_closed() -> None:
    async def scenario() -> None:
        port = await Hasty({}).listen("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(20):
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()

    asyncio.run(scenario())
