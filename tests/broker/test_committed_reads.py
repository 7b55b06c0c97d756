"""Fetch and ListOffsets with read_committed."""

import asyncio
from pathlib import Path

import pytest

from runnel.messages.describe_producers import DescribeProducersRequest, TopicRequest
from runnel.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.broker.requests import batch, fetch_from, only, produce_to, values
from tests.broker.test_templates import PathPair, frame_of, full_path_forbidden
from tests.broker.txn_calls import NONE, begin, end, play, write
from tests.broker.world import BrokerWorld, Client


async def latest(client: Client, isolation: int) -> int:
    topics = [ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, -1)])]
    reply = await client.ask(ListOffsetsRequest(-1, isolation, topics), 7)
    offset: int = reply.topics[0].partitions[0].offset
    return offset


@pytest.mark.parametrize("is_commit", [True, False])
def test_open_transaction_blocks_read_committed(tmp_path: Path, is_commit: bool) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        await client.ask(produce_to("t", (0, batch(b"before"))), 9)
        who = await begin(client)
        assert await write(client, "x", who, b"inside") == NONE
        await client.ask(produce_to("t", (0, batch(b"after"))), 9)
        reader = await world.connect()
        seen = only(await reader.ask(fetch_from("t", (0, 0), isolation=1), 11))
        assert (values(seen.records), seen.aborted_transactions) == ([b"before"], [])
        assert (seen.high_watermark, seen.last_stable_offset) == (3, 1)
        everything = only(await reader.ask(fetch_from("t", (0, 0)), 11))
        assert values(everything.records) == [b"before", b"inside", b"after"]
        assert (everything.aborted_transactions, everything.last_stable_offset) == (None, 1)
        assert (await latest(client, 1), await latest(client, 0)) == (1, 3)
        # The bytes held back by the transaction count, not only the marker.
        reader.send(fetch_from("t", (0, 1), isolation=1, wait_ms=20_000, min_bytes=100), 11)
        await asyncio.sleep(0.01)
        assert (await end(client, "x", who, is_commit=is_commit)).error_code == NONE
        seen = only(await reader.receive())
        assert [value for value in values(seen.records) if not value.startswith(b"\0")] == [
            b"inside",
            b"after",
        ]
        listed = [(entry.producer_id, entry.first_offset) for entry in seen.aborted_transactions]
        assert listed == ([] if is_commit else [(who[0], 1)])
        assert (seen.last_stable_offset, await latest(client, 1)) == (4, 4)

    play(tmp_path, scenario)


def test_aborted_transactions_are_listed_after_a_restart_where_they_overlap(tmp_path: Path) -> None:
    async def first(world: BrokerWorld, client: Client) -> None:
        who = await begin(client)
        for is_commit in (False, True, False):
            assert await write(client, "x", who, b"void") == NONE
            reply = await end(client, "x", who, is_commit=is_commit)
            who = reply.producer_id, reply.producer_epoch
        while await latest(client, 1) < 6:
            # The last marker is written asynchronously.
            await asyncio.sleep(0.01)

    async def second(world: BrokerWorld, client: Client) -> None:
        listed = [
            [entry.first_offset for entry in only(reply).aborted_transactions]
            for offset in range(6)
            for reply in [await client.ask(fetch_from("t", (0, offset), isolation=1), 12)]
        ]
        # The first record is so old that its segment ends with it, and so does the first response.
        assert listed == [[0], [0, 4], [4], [4], [4], [4]]
        little = only(await client.ask(fetch_from("t", (0, 1), isolation=1, partition_max_bytes=1), 12))
        assert [entry.first_offset for entry in little.aborted_transactions] == [0]
        reply = await client.ask(DescribeProducersRequest([TopicRequest("t", [0])]), 0)
        (producer,) = reply.topics[0].partitions[0].active_producers
        assert (producer.producer_epoch, producer.current_txn_start_offset) == (3, -1)
        assert producer.coordinator_epoch >= 0

    play(tmp_path, first)
    play(tmp_path, second)


def test_describe_shows_an_open_transaction(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        await client.ask(produce_to("t", (0, batch(b"before"))), 9)
        who = await begin(client)
        assert await write(client, "x", who, b"inside") == NONE
        reply = await client.ask(DescribeProducersRequest([TopicRequest("t", [0])]), 0)
        (producer,) = reply.topics[0].partitions[0].active_producers
        assert (producer.producer_id, producer.producer_epoch) == who
        assert (producer.current_txn_start_offset, producer.coordinator_epoch) == (1, -1)
        assert (producer.last_sequence, producer.last_timestamp) == (0, 1_700_000_000_000)

    play(tmp_path, scenario)


@pytest.mark.parametrize("version", [11, 12, 13])
def test_template_path_with_transactions(tmp_path: Path, version: int) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        paths = PathPair(world)
        topic = world.topic_id("t") if version >= 13 else "t"

        def produce(who: tuple[int, int], sequence: int) -> bytes:
            records = batch(
                b"v", producer_id=who[0], producer_epoch=who[1], base_sequence=sequence, transactional=True
            )
            return frame_of(produce_to(topic, (0, records), transactional_id="x"), version)

        def fetch(offset: int) -> bytes:
            return frame_of(fetch_from(topic, (0, offset), isolation=1), version)

        who = await begin(client)
        assert await write(client, "x", who, b"first") == NONE
        assert paths.template_path(produce(who, 1)) is not None
        with full_path_forbidden(paths):
            assert paths.template_path(produce(who, 2)) is not None
        assert world.broker.partition("t", 0).log.end_offset == 3
        assert (await end(client, "x", who)).error_code == NONE
        while await latest(client, 1) < 4:
            await asyncio.sleep(0.01)
        # A delayed batch of a completed transaction neither starts one nor is appended.
        assert paths.template_path(produce(who, 3)) is not None
        assert world.broker.partition("t", 0).log.end_offset == 4
        for is_commit in (True, False):
            # From now on no read waits for the disk.
            await client.ask(fetch_from("t", (0, 0), isolation=1), 11)
            expected = paths.full_path(fetch(0))
            paths.template_path(fetch(0))
            if is_commit:
                with full_path_forbidden(paths):
                    assert paths.template_path(fetch(0)) == expected
                who = who[0], who[1] + 1
                assert await write(client, "x", who, b"void") == NONE
                assert (await end(client, "x", who, is_commit=False)).error_code == NONE
                while await latest(client, 1) < 6:
                    await asyncio.sleep(0.01)
            else:
                assert paths.template_path(fetch(0)) == expected

    play(tmp_path, scenario)
