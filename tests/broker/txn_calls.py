"""Requests of a transactional producer, and a broker to send them to."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from runnel.batch.header import read_header
from runnel.batch.records import iterate_records
from runnel.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from runnel.messages.describe_transactions import DescribeTransactionsRequest
from runnel.messages.end_txn import EndTxnRequest
from runnel.messages.find_coordinator import FindCoordinatorRequest
from runnel.messages.init_producer_id import InitProducerIdRequest
from runnel.model.errors import ErrorCode
from tests.broker.requests import batch, fetch_from, only, produce_to
from tests.broker.world import BrokerWorld, Client

NONE = ErrorCode.NONE.code
SETTINGS = {"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3"}
CLASSIC, NEW = 4, 5

Scenario = Callable[[BrokerWorld, Client], Awaitable[None]]


def play(folder: Path, scenario: Scenario, **settings: str) -> None:
    """Run a scenario against a new broker, which is shut down cleanly."""

    async def run() -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        async with BrokerWorld(folder, {**SETTINGS, **named}) as world:
            if "t" not in world.broker.metadata.image.topics:
                await world.create("t", partitions=2)
            client = await world.connect()
            for kind in (0, 1):
                await client.ask(FindCoordinatorRequest(key="x", key_type=kind), 1)
            while not all(driver.is_loaded for driver in world.broker.transactions._drivers.values()):
                await asyncio.sleep(0)
            await scenario(world, client)

    asyncio.run(run())


async def init(client: Client, name: str = "x", version: int = 5, **fields: Any) -> Any:
    request = InitProducerIdRequest(name, **{"transaction_timeout_ms": 60_000, **fields})
    return await client.ask(request, version)


async def begin(client: Client, name: str = "x") -> tuple[int, int]:
    """Initialise the producer; returns producer id and epoch."""
    reply = await init(client, name)
    assert reply.error_code == NONE
    return reply.producer_id, reply.producer_epoch


async def write(client: Client, name: str, who: tuple[int, int], value: bytes, **options: Any) -> int:
    """Produce one transactional record with the KIP-890 protocol; returns the error code."""
    records = batch(
        value,
        producer_id=who[0],
        producer_epoch=who[1],
        base_sequence=options.pop("sequence", 0),
        transactional=True,
    )
    request = produce_to("t", (options.pop("partition", 0), records), transactional_id=name)
    reply = only(await client.ask(request, options.pop("version", 12)))
    error: int = reply.error_code
    return error


async def end(
    client: Client, name: str, who: tuple[int, int], *, is_commit: bool = True, version: int = NEW
) -> Any:
    return await client.ask(EndTxnRequest(name, *who, is_commit), version)


async def describe(client: Client, name: str) -> Any:
    (state,) = (await client.ask(DescribeTransactionsRequest([name]), 0)).transaction_states
    return state


async def committed(client: Client, partition: int = 0) -> list[bytes]:
    """Values below the last stable offset, without markers."""
    found: list[bytes] = []
    offset = 0
    while True:
        request = fetch_from("t", (partition, offset), isolation=1)
        response = only(await client.ask(request, 11))
        data = memoryview(bytes(response.records or b""))
        if not data:
            return found
        while data:
            header = read_header(data)
            if not header.is_control:
                found += [bytes(record.value or b"") for record in iterate_records(data)]
            offset = header.next_offset
            data = data[header.size_bytes :]


def add_request(name: str, who: tuple[int, int], version: int, *topics: AddPartitionsToTxnTopic) -> Any:
    if version >= 4:
        return AddPartitionsToTxnRequest([AddPartitionsToTxnTransaction(name, *who, False, list(topics))])
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=who[0],
        v3_and_below_producer_epoch=who[1],
        v3_and_below_topics=list(topics),
    )


def added(reply: Any, version: int) -> dict[tuple[str, int], int]:
    topics = (
        reply.results_by_transaction[0].topic_results if version >= 4 else reply.results_by_topic_v3_and_below
    )
    return {
        (topic.name, part.partition_index): part.partition_error_code
        for topic in topics
        for part in topic.results_by_partition
    }
