"""Addresses of admin listeners, and HTTP GET against a server that answers with given bytes."""

import asyncio

import pytest

from runnel.client.admin_listener import parse, reachable
from runnel.client.http_get import GetFailed, get

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"


async def answered(data: bytes, *, is_closed: bool = True, limit: int = 1000) -> bytes:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(data)
        if not is_closed:
            await reader.read()
        writer.close()
        closed.set()

    closed = asyncio.Event()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        try:
            return await get(
                "127.0.0.1", port, "/metrics", timeout_s=10 if is_closed else 0.2, body_bytes_max=limit
            )
        finally:
            await closed.wait()


@pytest.mark.parametrize(
    "data",
    [
        HEAD + b"Content-Length: 5\r\n\r\nhello",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\nhello",
    ],
    ids=["length", "chunked", "until the end"],
)
def test_bodies(data):
    assert asyncio.run(answered(data)) == b"hello"


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n",
        b"SSH-2.0-x\r\n\r\n",
        b"",
        HEAD + b"Content-Length: 1001\r\n\r\n",
        HEAD + b"Content-Length: -1\r\n\r\n",
        HEAD + b"Content-Length: 5\r\n\r\nhell",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nfff\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nx\r\n",
        HEAD + b"\r\n" + b"x" * 1001,
        HEAD + b"X: " + b"x" * 100_000,
    ],
)
def test_failures(data):
    with pytest.raises(GetFailed):
        asyncio.run(answered(data))


def test_a_server_that_does_not_answer():
    with pytest.raises(GetFailed, match="no answer within"):
        asyncio.run(answered(b"HTTP/1.1", is_closed=False))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.1:9644", ("10.0.0.1", 9644)),
        ("http://10.0.0.1:9644", ("10.0.0.1", 9644)),
        ("0.0.0.0:9644", ("broker-1", 9644)),
        (":9644", ("broker-1", 9644)),
        ("[::1]:9644,x:1", ("::1", 9644)),
        ("[::]:9644", ("broker-1", 9644)),
        ("off", None),
        ("", None),
        ("host:port", None),
    ],
)
def test_addresses_of_admin_listeners(text, address):
    assert parse(text, "broker-1") == address


@pytest.mark.parametrize(
    ("address", "broker_host", "is_reachable"),
    [
        (("127.0.0.1", 9644), "127.0.0.1", True),
        (("localhost", 9644), "localhost", True),
        # The loopback address of another machine: here it may be another broker's.
        (("127.0.0.1", 9644), "192.0.2.1", False),
        (("127.0.0.1", 9644), "no-such-host.invalid", False),
        (("192.0.2.1", 9644), "192.0.2.1", True),
        (None, "127.0.0.1", False),
    ],
)
def test_a_loopback_address_is_used_on_its_machine_only(address, broker_host, is_reachable):
    assert asyncio.run(reachable(address, broker_host)) == (address if is_reachable else None)
