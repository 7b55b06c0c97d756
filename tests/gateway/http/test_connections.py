"""Connections on which a client sends a request before the response to the one before it."""

import json
import socket
import time
from contextlib import suppress

import pytest
from websockets.frames import Frame
from websockets.sync.client import connect

from runnel.gateway.options import GatewayOptions
from runnel.gateway.protocols import SocketProtocol
from tests.gateway.gateways import serving
from tests.gateway.http.clients import Client
from tests.gateway.http.test_pressure import deaf
from tests.observe.scraping import scrape, total

LIVE = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
ALIVE = b'{"status":"ok"}'


def head(path: str, *headers: str) -> bytes:
    return "\r\n".join((f"GET {path} HTTP/1.1", "Host: localhost", *headers, "", "")).encode()


def received(line: socket.socket, count: int, data: bytearray) -> int:
    """Wait for this many responses of `/livez`; how many came before the connection was closed."""
    while data.count(ALIVE) < count and (part := line.recv(65536)):
        data += part
    return data.count(ALIVE)


def open_streams(client: Client) -> float:
    return total(scrape(f"{client.host}:{client.port}"), "runnel_http_streams", kind="sse")


def eventually(client: Client, count: int) -> None:
    deadline = time.monotonic() + 20
    while open_streams(client) != count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_requests_in_advance_are_answered_in_turn(client: Client) -> None:
    with socket.create_connection((client.host, client.port), timeout=30) as line:
        data = bytearray()
        line.sendall(LIVE * 80)
        for turn in range(1, 20):
            assert received(line, 40 * turn, data) >= 40 * turn
            line.sendall(LIVE * 40)


def test_requests_that_wait_for_another_are_limited(client: Client, topic: str) -> None:
    with (
        socket.create_connection((client.host, client.port), timeout=10) as line,
        suppress(ConnectionError),
    ):
        line.sendall(head(f"/topics/{topic}/subscribe?wait=60000") + LIVE * 5_000)
        # Else a time-out: the first one is not answered yet.
        assert received(line, 1, bytearray()) == 0
    assert client.get("/livez").status == 200


def test_a_stream_ends_with_its_connection_although_a_request_waits(http_broker, monkeypatch) -> None:
    monkeypatch.setattr("runnel.gateway.http.streams.following.STREAM_IDLE_S", 0.1)
    with serving(GatewayOptions(http_broker.bootstrap_servers)) as visitor:
        client = Client.of(visitor)
        client.create("left-http")
        with socket.create_connection((client.host, client.port), timeout=30) as line:
            line.sendall(head("/topics/left-http/subscribe", "Accept: text/event-stream"))
            assert line.recv(12) == b"HTTP/1.1 200"
            eventually(client, 1)
            line.sendall(LIVE)
        eventually(client, 0)


def test_a_connection_with_a_stream_does_not_become_a_socket(client: Client, topic: str) -> None:
    before = open_streams(client)
    upgrade = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")
    with socket.create_connection((client.host, client.port), timeout=10) as line:
        line.sendall(head(f"/topics/{topic}/subscribe", "Accept: text/event-stream"))
        assert line.recv(12) == b"HTTP/1.1 200"
        line.sendall(
            head(f"/topics/{topic}/subscribe", *upgrade, "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==")
        )
        with suppress(ConnectionError):
            while data := line.recv(65536):
                assert b"101 Switching" not in data
    eventually(client, int(before))


def test_connections_have_a_limit(http_broker, monkeypatch) -> None:
    monkeypatch.setattr("runnel.gateway.protocols.CONNECTIONS_MAX", 2)
    with serving(GatewayOptions(http_broker.bootstrap_servers)) as visitor:
        address = visitor.host, visitor.port
        with (
            socket.create_connection(address, timeout=10) as first,
            socket.create_connection(address) as idle,
        ):
            first.sendall(LIVE)
            assert received(first, 1, bytearray()) == 1
            with socket.create_connection(address, timeout=10) as third, suppress(ConnectionError):
                third.sendall(LIVE)
                assert third.recv(100) == b""
            idle.close()
        deadline = time.monotonic() + 20
        while Client.of(visitor).get("/livez").status != 200:
            assert time.monotonic() < deadline


PING = b"\x89\xfd" + bytes(4) + b"x" * 125


def test_pings_whose_answers_are_not_read_have_a_limit(client: Client, topic: str) -> None:
    with deaf(client, topic) as line:
        try:
            # More than both kernels buffer: it can only be sent if the gateway reads it all.
            for _ in range(1_000):
                line.sendall(PING * 500)
            pytest.fail("all of them were answered")
        except ConnectionError:
            pass


def test_messages_that_arrive_together_are_parsed_in_parts(client: Client, topic: str, monkeypatch) -> None:
    waiting = []
    handle_text = SocketProtocol.handle_text

    def counted(self: SocketProtocol, event: Frame) -> None:
        waiting.append(self.queue.qsize())
        handle_text(self, event)

    monkeypatch.setattr(SocketProtocol, "handle_text", counted)
    address = f"ws://{client.host}:{client.port}/topics/{topic}/subscribe?credit=0"
    small = b'{"type":"publish","record":{"value":1},"id":%d}'
    frames = [
        b"\x81" + bytes([0x80 | len(small % number)]) + bytes(4) + small % number for number in range(5_000)
    ]
    with connect(address) as line:
        line.socket.sendall(b"".join(frames))
        answers = [json.loads(line.recv(timeout=20)) for _ in frames]
    assert sorted(each["id"] for each in answers) == list(range(5_000))
    assert len(waiting) == 5_000 and max(waiting) < 100 + 16 * 1024 // 50
