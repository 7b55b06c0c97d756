"""Bootstrap, error messages and reconnection."""

import asyncio
import socket
import threading

import pytest

from runnel.client.admin import Admin
from runnel.client.cluster import GROUP_KEY, Cluster, parse_addresses
from runnel.client.connection import Connection
from runnel.client.errors import (
    BrokerError,
    BrokerNotAvailable,
    ClientError,
    ConnectionLost,
    InvalidResponse,
    NoBrokerAvailable,
    TimedOut,
)
from runnel.client.groups import Groups
from runnel.client.producer import Producer
from runnel.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from runnel.messages.metadata import MetadataRequest, MetadataResponse
from runnel.model.ids import TopicPartition
from runnel.testing import Broker


@pytest.mark.parametrize(
    "text, expected",
    [
        ("localhost", [("localhost", 9092)]),
        ("a:1, b:2", [("a", 1), ("b", 2)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("[::1]", [("::1", 9092)]),
    ],
)
def test_bootstrap_servers_are_parsed(text, expected):
    assert parse_addresses(text) == expected


@pytest.mark.parametrize("text", ["", " , ", "a:b", ":9092", "a:0", "a:99999"])
def test_invalid_bootstrap_servers(text):
    with pytest.raises(ValueError, match=r"127\.0\.0\.1:9092"):
        parse_addresses(text)


def closed_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


async def connect(address: str, **options: float) -> None:
    async with Cluster(address, **options):  # type: ignore[arg-type]
        pass


def test_an_unreachable_broker_is_reported_with_a_hint():
    address = f"127.0.0.1:{closed_port()}"
    with pytest.raises(
        NoBrokerAvailable, match=rf"no broker available at {address} \(connection refused\).*runnel serve"
    ):
        asyncio.run(connect(address))


def test_the_second_bootstrap_server_is_used(address):
    asyncio.run(connect(f"127.0.0.1:{closed_port()},{address}"))


def connect_to_stranger(answer: bytes, timeout_s: float) -> None:
    """Connect to a server of another protocol that sends these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def talk() -> None:
            visitor, _ = listener.accept()
            with visitor:
                visitor.recv(1000)
                visitor.sendall(answer)
                # Until the client disconnects.
                while visitor.recv(1000):
                    pass

        listener.settimeout(30)
        thread = threading.Thread(target=talk)
        thread.start()
        try:
            asyncio.run(Connection.open("127.0.0.1", listener.getsockname()[1], timeout_s=timeout_s))
        finally:
            thread.join()


def test_another_protocol_is_detected():
    with pytest.raises(ConnectionLost, match="is this a Kafka listener"):
        connect_to_stranger(b"HTTP/1.1 400 Bad Request\r\n\r\n", 20)


def test_an_unresponsive_server_times_out():
    with pytest.raises(TimedOut, match=r"did not respond to ApiVersions within 0\.5 s"):
        connect_to_stranger(b"", 0.5)


def test_pipelined_requests(address):
    async def play() -> None:
        async with Cluster(address) as cluster:
            connection = await cluster.any_connection()
            async with asyncio.TaskGroup() as tasks:
                for _ in range(50):
                    tasks.create_task(connection.send(MetadataRequest(topics=[]), MetadataResponse))
                    tasks.create_task(connection.send(ListGroupsRequest(), ListGroupsResponse))
                await asyncio.sleep(0)
                assert len(connection._waiting) > 1

    asyncio.run(play())


def test_an_unknown_topic_is_reported_with_a_hint(address, name):
    async def play() -> None:
        async with Cluster(address) as cluster:
            await cluster.topic(name)

    with pytest.raises(
        BrokerError, match=f"topic '{name}' does not exist; create it with `runnel topic create"
    ):
        asyncio.run(play())


def test_a_lost_connection_fails_its_requests_and_is_reopened(name):
    async def play() -> None:
        async with Broker() as broker, Cluster(broker.bootstrap_servers) as cluster:
            await Admin(cluster).create_topic(name)
            connection = await cluster.any_connection()
            await asyncio.to_thread(broker.stop)
            with pytest.raises(ConnectionLost):
                await connection.send(MetadataRequest(topics=[]), MetadataResponse)
            await asyncio.to_thread(broker.start)
            cluster.invalidate_topic(name)
            assert len((await cluster.topic(name)).partitions) == 1

    asyncio.run(play())


def test_an_unavailable_coordinator_is_looked_up_again(address, name):
    async def play() -> None:
        async with Cluster(address) as cluster:
            cluster._coordinators[GROUP_KEY, name] = 99
            assert await Groups(cluster).stable_offsets(name, [TopicPartition(name, 0)]) == {}
            with pytest.raises(BrokerNotAvailable, match="broker 99 is not available"):
                await cluster.connection(99)

    asyncio.run(play())


def test_errors_have_one_base_class():
    family = {NoBrokerAvailable, ConnectionLost, TimedOut, BrokerNotAvailable, BrokerError, InvalidResponse}
    assert family <= set(ClientError.__subclasses__())


@pytest.mark.parametrize(("max_age_s", "seen"), [(0.0, 3), (300.0, 2)])
def test_metadata_has_a_maximum_age(address, name, max_age_s, seen):
    async def play() -> None:
        async with Cluster(address) as other, Cluster(address, metadata_max_age_s=max_age_s) as cluster:
            await Admin(other).create_topic(name, partitions=2)
            assert len((await cluster.topic(name)).partitions) == 2
            await Admin(other).add_partitions(name, 3)
            assert len((await cluster.topic(name)).partitions) == seen
            assert len((await cluster.topic(name, max_age_s=0.0)).partitions) == 3
            async with Producer(cluster) as producer:
                assert (await producer.send_and_wait(name, b"x", partition=2)).offset == 0

    asyncio.run(play())
