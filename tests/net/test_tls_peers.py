"""Channels to other nodes over TLS: names are verified, and each failure is recognised."""

import asyncio
import ssl
from collections.abc import Callable

import pytest

from runnel.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from runnel.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from runnel.net.peers import TcpPeers
from runnel.ports.peers import PeerFailed, PeerRefused
from runnel.server.ports import free_ports
from runnel.tls.context import client_context
from tests.net.scripted import certificates, client_tls, server_tls
from tests.net.test_peers import Node


async def listening(node: Node, context: ssl.SSLContext | None) -> int:
    node.server = await asyncio.start_server(node._serve, "127.0.0.1", 0, ssl=context)
    port: int = node.server.sockets[0].getsockname()[1]
    return port


async def ask(
    port: int,
    host: str = "127.0.0.1",
    tls: Callable[[], ssl.SSLContext] = client_tls,
    timeout_ms: int = 20_000,
) -> object:
    peers = TcpPeers(timeout_ms, tls)
    try:
        return await peers.channel(host, port, "node-1").send(HeartbeatRequest(), timeout_ms=timeout_ms)
    finally:
        peers.close()
        await asyncio.sleep(0.01)


def test_requests_over_mutual_tls(run):
    async def scenario() -> None:
        records = bytes(range(256)) * 8_000

        def fetched(*_: object) -> FetchResponse:
            return FetchResponse(
                responses=[FetchableTopicResponse("t", partitions=[PartitionData(0, records=records)])]
            )

        node = Node(fetched)
        port = await listening(node, server_tls(client_auth="required").context)
        peers = TcpPeers(tls=client_tls)
        channel = peers.channel("localhost", port, "node-1")
        answers = await asyncio.gather(*(channel.send(FetchRequest(), version=12) for _ in range(3)))
        assert [answer.responses[0].partitions[0].records for answer in answers] == [records] * 3
        assert node.connections == 1
        peers.close()
        await node.stop()

    run(scenario())


@pytest.mark.parametrize("checks_names", [True, False])
def test_names_are_verified_unless_that_is_switched_off(run, checks_names):
    async def scenario() -> None:
        node = Node()
        node.server = await asyncio.start_server(node._serve, "127.0.0.2", 0, ssl=server_tls().context)
        port: int = node.server.sockets[0].getsockname()[1]
        settings, material = certificates()
        context = client_context(settings, material)
        context.check_hostname = checks_names
        if checks_names:
            with pytest.raises(PeerFailed, match=r"its certificate is not accepted: .*mismatch"):
                await ask(port, "127.0.0.2", lambda: context)
        else:
            assert isinstance(await ask(port, "127.0.0.2", lambda: context), HeartbeatResponse)
        await node.stop()

    run(scenario())


def test_a_node_that_is_not_trusted(run):
    async def scenario() -> None:
        node = Node()
        port = await listening(node, server_tls().context)
        context = ssl.create_default_context()
        with pytest.raises(PeerFailed, match="TLS failed: its certificate is not accepted"):
            await ask(port, tls=lambda: context)
        await node.stop()

    run(scenario())


def test_a_node_that_requires_a_certificate(run):
    async def scenario() -> None:
        node = Node()
        port = await listening(node, server_tls(client_auth="required").context)
        bare = ssl.create_default_context(
            cadata=ssl.DER_cert_to_PEM_cert(certificates()[1].trusted[0].encoded)
        )
        with pytest.raises(PeerFailed):
            await ask(port, tls=lambda: bare)
        assert node.received == []
        await node.stop()

    run(scenario())


def test_a_node_without_tls_and_a_host_without_a_node(run):
    async def scenario() -> None:
        node = Node()
        port = await listening(node, None)
        with pytest.raises(PeerFailed):
            await ask(port, timeout_ms=300)
        await node.stop()
        with pytest.raises(PeerRefused):
            await ask(free_ports("127.0.0.1", 1)[0])

    run(scenario())
