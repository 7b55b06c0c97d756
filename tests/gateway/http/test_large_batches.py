"""Batches of a few bytes that decompress to many: those who may write to a topic choose them."""

import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import pytest

from runnel.batch.records import Headers
from runnel.client.cluster import Cluster
from runnel.client.producer import Producer
from runnel.gateway import turns
from runnel.gateway.options import GatewayOptions
from runnel.testing import Broker
from tests.gateway.gateways import serving
from tests.gateway.http.clients import Client

COUNT = 8


def produce(broker: Broker, topic: str, sizes: Sequence[int], headers: Headers = ()) -> None:
    """A batch for each record, in four partitions."""

    async def run(cluster: Cluster) -> None:
        async with Producer(cluster, compression="zstd") as producer:
            for number, size in enumerate(sizes):
                await producer.send_and_wait(topic, b"x" * size, headers=headers, partition=number % 4)

    with broker.client() as client:
        client.create_topic(topic, partitions=4)
        client.run(run)


@pytest.fixture(scope="module")
def large(http_broker: Broker) -> str:
    produce(http_broker, "large-http", [60_000] * COUNT)
    return "large-http"


def test_a_poll_reads_what_there_is_room_for(client: Client, large, monkeypatch) -> None:
    monkeypatch.setattr(turns, "BATCH_BYTES_MAX", 100_000)
    found, cursor = [], "offset=0"
    for _ in range(20):
        answer = client.get(f"/topics/{large}/subscribe?{cursor}")
        assert answer.status == 200 and len(answer.json["messages"]) < COUNT
        found += [(each["partition"], each["offset"]) for each in answer.json["messages"]]
        cursor = f"cursor={answer.json['next']}"
    assert sorted(found) == [(number, offset) for number in range(4) for offset in range(2)]


def test_streams_that_catch_up_share_a_room(http_broker, large, monkeypatch) -> None:
    monkeypatch.setattr(turns, "BATCH_BYTES_MAX", 100_000)
    monkeypatch.setattr("runnel.gateway.http.streams.feeds.STREAMS_BYTES_MAX", 100_000)
    monkeypatch.setattr("runnel.gateway.http.streams.following.STREAM_WRITE_BYTES", 10_000)

    def read(client: Client) -> list[tuple[int, int]]:
        with client.events(f"/topics/{large}/subscribe?offset=0") as events:
            return [(each["partition"], each["offset"]) for each in events.take(COUNT)]

    with (
        serving(GatewayOptions(http_broker.bootstrap_servers)) as visitor,
        ThreadPoolExecutor(4) as readers,
    ):
        found = list(readers.map(read, [Client.of(visitor)] * 4))
    assert {len(set(each)) for each in found} == {COUNT}


def test_what_clients_do_not_read_has_a_limit(http_broker, monkeypatch) -> None:
    """The connection with most of it is dropped, and nothing else."""
    produce(http_broker, "unread-http", [100_000] * 140)
    monkeypatch.setattr("runnel.gateway.app.UNSENT_BYTES_MAX", 14_000_000)
    with serving(GatewayOptions(http_broker.bootstrap_servers)) as visitor, ExitStack() as stack:
        lines = []
        for _ in range(2):
            line = stack.enter_context(socket.socket())
            line.settimeout(30)
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            line.connect((visitor.host, visitor.port))
            path = "/topics/unread-http/subscribe?offset=0&max=10000"
            line.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert line.recv(12) == b"HTTP/1.1 200"
            lines.append(line)
        assert sorted(is_complete(line) for line in lines) == [False, True]
        assert Client.of(visitor).get("/livez").status == 200


def is_complete(line: socket.socket) -> bool:
    """Read the rest of a response: is it all of it?"""
    received = bytearray()
    with suppress(ConnectionError):
        while len(received) < 14_000_000 and (part := line.recv(65536)):
            received += part
    return len(received) >= 14_000_000


def test_a_batch_that_is_too_large_is_a_413(http_broker, large, monkeypatch) -> None:
    monkeypatch.setattr(turns, "BATCH_BYTES_MAX", 50_000)
    with serving(GatewayOptions(http_broker.bootstrap_servers)) as visitor:
        client = Client.of(visitor)
        refused = client.get(f"/topics/{large}/subscribe?offset=0")
        assert refused.status == 413 and "decompress to more than 50000 bytes" in refused.json["detail"]
        with client.events(f"/topics/{large}/subscribe?offset=0") as events:
            name, problem = events.next()
        assert (name, problem["status"]) == ("error", 413)


def test_a_record_with_too_many_headers_is_a_413(client: Client, http_broker, monkeypatch) -> None:
    monkeypatch.setattr(turns, "HEADERS_MAX", 20)
    produce(http_broker, "headers-http", [1], [("", None)] * 21)
    refused = client.get("/topics/headers-http/subscribe?offset=0")
    assert refused.status == 413 and "21 headers" in refused.json["detail"]
