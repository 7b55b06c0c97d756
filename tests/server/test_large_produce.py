"""Large produce requests are served in slices from the memory in which they were received."""

import asyncio
from pathlib import Path

from runnel.client.connection import Connection
from runnel.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from runnel.messages.fetch import FetchResponse
from runnel.messages.produce import ProduceResponse
from runnel.model.limits import PRODUCED_PER_SLICE
from runnel.server.node import Node
from tests.broker.requests import batch, fetch_from, produce_to, values

CLIENTS = 4
REQUESTS = 3
PARTITIONS = 2 * PRODUCED_PER_SLICE
PADDING = 4_000
"""Several receives, so that each request has a buffer, which is used again by the next of the same size."""


ATTEMPTS = 50


def value(client: int, request: int, partition: int) -> bytes:
    return f"{client} {request} {partition} ".encode() * (PADDING // 10)


async def produce(port: int, client: int) -> None:
    connection = await Connection.open("127.0.0.1", port, timeout_s=60)
    for number in range(REQUESTS):
        batches = [(index, batch(value(client, number, index))) for index in range(PARTITIONS)]
        answer = await connection.send(produce_to("events", *batches), ProduceResponse, timeout_s=120)
        refused = [one for one in answer.responses[0].partition_responses if one.error_code]
        assert refused == []
    await connection.close()


async def stored(connection: Connection, partition: int) -> list[bytes]:
    """All records of a partition; a fetch may return fewer than there are."""
    found: list[bytes] = []
    for _ in range(ATTEMPTS):
        request = fetch_from("events", (partition, len(found)), wait_ms=100)
        answer = await connection.send(request, FetchResponse, timeout_s=60)
        found += values(answer.responses[0].partitions[0].records)
        if len(found) >= CLIENTS * REQUESTS:
            break
    return found


def test_requests_in_slices_do_not_overwrite_each_other(tmp_path: Path) -> None:
    """Batches have checksums: one that was overwritten would be refused, or is not what was sent."""

    async def story() -> None:
        async with Node({"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}) as node:
            connection = await Connection.open("127.0.0.1", node.port, timeout_s=60)
            topics = [CreatableTopic("events", PARTITIONS, replication_factor=1)]
            created = await connection.send(CreateTopicsRequest(topics), CreateTopicsResponse, timeout_s=60)
            assert created.topics[0].error_message is None
            await asyncio.gather(*(produce(node.port, client) for client in range(CLIENTS)))
            for partition in range(PARTITIONS):
                sent = [value(i, number, partition) for i in range(CLIENTS) for number in range(REQUESTS)]
                assert sorted(await stored(connection, partition)) == sorted(sent)
            await connection.close()

    asyncio.run(story())
