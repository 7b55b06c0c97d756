"""Listeners of a node, and dynamic settings that take effect while it runs."""

import asyncio
from pathlib import Path

from runnel.client.admin import Admin
from runnel.client.cluster import Cluster
from runnel.client.connection import Connection
from runnel.client.errors import ClientError
from runnel.client.quotas import Quotas
from runnel.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from runnel.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from runnel.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from runnel.messages.metadata import MetadataRequest, MetadataResponse
from runnel.model.configs import AlterOperation, ResourceType
from runnel.server.node import Node


async def answers(connection: Connection) -> bool:
    """True if the node still responds on this connection."""
    try:
        await connection.send(ApiVersionsRequest("test", "1"), ApiVersionsResponse, timeout_s=20)
    except ClientError:
        return False
    return True


async def allow(admin: Admin, connections: int) -> None:
    change = ("max.connections", AlterOperation.SET, str(connections))
    await admin.alter_settings(ResourceType.BROKER, "1", [change])


def test_max_connections_is_applied_at_once_and_survives_a_restart(tmp_path: Path) -> None:
    settings = {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}

    async def change() -> None:
        async with Node(settings) as node, Cluster(node.bootstrap_servers) as cluster:
            admin = Admin(cluster)
            silent = [await Connection.open("127.0.0.1", node.port) for _ in range(3)]
            await allow(admin, 2)
            # The connection that requested the change is the most recently used.
            await admin.settings(ResourceType.BROKER, "1")
            assert [await answers(connection) for connection in silent].count(True) <= 1
            waiting = asyncio.create_task(Connection.open("127.0.0.1", node.port, timeout_s=30))
            await asyncio.sleep(0.1)
            assert not waiting.done()
            await allow(admin, 9)
            late = await waiting
            assert await answers(late)
            await allow(admin, 1)
            for connection in (late, *silent):
                await connection.close()

    async def see() -> None:
        async with Node(settings) as node:
            only = await Connection.open("127.0.0.1", node.port)
            waiting = asyncio.create_task(Connection.open("127.0.0.1", node.port, timeout_s=30))
            await asyncio.sleep(0.1)
            assert await answers(only) and not waiting.done()
            await only.close()
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    asyncio.run(change())
    asyncio.run(see())


def test_connections_of_an_address_have_a_rate(tmp_path: Path) -> None:
    settings = {
        "log.dirs": str(tmp_path),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "quota.window.num": "2",
    }

    async def scenario() -> None:
        async with Node(settings) as node, Cluster(node.bootstrap_servers) as cluster:
            await Quotas(cluster).alter({"ip": "127.0.0.1"}, {"connection_creation_rate": 2})
            opening = (Connection.open("127.0.0.1", node.port) for _ in range(20))
            outcomes = await asyncio.gather(*opening, return_exceptions=True)
            served = [each for each in outcomes if isinstance(each, Connection)]
            assert 1 <= len(served) < 20
            assert all(isinstance(each, (Connection, ClientError)) for each in outcomes)
            for connection in served:
                await connection.close()

    asyncio.run(scenario())


def test_cleaner_settings_are_applied(tmp_path: Path) -> None:
    settings = {
        "log.dirs": str(tmp_path),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.cleaner.backoff.ms": "7000",
    }

    async def scenario() -> None:
        async with Node(settings) as node, Cluster(node.bootstrap_servers) as cluster:
            assert node._cleaner is not None
            assert node._cleaner._backoff_ms == 7000
            changes = [("log.cleaner.backoff.ms", "8000"), ("log.cleaner.dedupe.buffer.size", "2000000")]
            await Admin(cluster).alter_settings(
                ResourceType.BROKER, "1", [(name, AlterOperation.SET, value) for name, value in changes]
            )
            assert (node._cleaner._backoff_ms, node._cleaner._key_memory_bytes) == (8000, 2_000_000)

    asyncio.run(scenario())


def test_each_listener_answers_with_its_own_endpoints(tmp_path: Path) -> None:
    settings = {
        "log.dirs": str(tmp_path),
        "listeners": "PLAINTEXT://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "advertised.listeners": "PLAINTEXT://127.0.0.1:0,OUTSIDE://outside.example.com:4711",
    }

    async def scenario() -> None:
        async with Node(settings) as node:
            inside = ("127.0.0.1", node.port)
            assert node.ports["PLAINTEXT"] == node.port != node.ports["OUTSIDE"]
            assert node.bootstrap_servers == f"127.0.0.1:{node.port}"
            for name, endpoint in (("PLAINTEXT", inside), ("OUTSIDE", ("outside.example.com", 4711))):
                connection = await Connection.open("127.0.0.1", node.ports[name])
                described = await connection.send(DescribeClusterRequest(), DescribeClusterResponse)
                metadata = await connection.send(MetadataRequest(topics=[]), MetadataResponse)
                request = FindCoordinatorRequest(coordinator_keys=["g"])
                found = await connection.send(request, FindCoordinatorResponse)
                for answer in (described.brokers[0], metadata.brokers[0], found.coordinators[0]):
                    assert (answer.host, answer.port) == endpoint
                await connection.close()

    asyncio.run(scenario())


def test_listeners_of_clients_share_the_limit_of_connections(tmp_path: Path) -> None:
    settings = {
        "log.dirs": str(tmp_path),
        "listeners": "PLAINTEXT://127.0.0.1:0,A://127.0.0.1:0,B://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,A:PLAINTEXT,B:PLAINTEXT",
        "max.connections": "1",
    }

    async def scenario() -> None:
        async with Node(settings) as node:
            first = await Connection.open("127.0.0.1", node.ports["A"])
            waiting = asyncio.create_task(Connection.open("127.0.0.1", node.ports["B"], timeout_s=30))
            # The listener for other brokers has room for them, whatever clients do.
            brokers = [await Connection.open("127.0.0.1", node.ports["PLAINTEXT"]) for _ in range(2)]
            assert not waiting.done()
            await first.close()
            for connection in (await waiting, *brokers):
                assert await answers(connection)
                await connection.close()

    asyncio.run(scenario())


def test_anonymous_super_users_are_warned_of(tmp_path: Path, caplog) -> None:
    async def scenario() -> None:
        node = Node(
            {
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "log.dirs": str(tmp_path),
                "authorizer.class.name": "acl",
                "super.users": "User:admin; User:ANONYMOUS",
            }
        )
        await node.start()
        await node.stop()

    asyncio.run(scenario())
    assert "User:ANONYMOUS is a super user" in caplog.text
