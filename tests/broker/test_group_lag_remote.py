"""The lag of groups in partitions that other brokers lead."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from runnel.broker.runtime import remote_ends
from runnel.controller.values import CONSUMER_OFFSETS, TRANSACTION_STATE
from runnel.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from runnel.messages.fetch import FetchRequest
from runnel.messages.find_coordinator import FindCoordinatorRequest
from runnel.messages.list_offsets import ListOffsetsRequest
from runnel.observe.lag.partitions import BY_RECORD_TIME, NO_RECORD, OPEN_TRANSACTION
from tests.broker.brokers import Brokers
from tests.broker.group_calls import codes, commit_request, loaded
from tests.broker.requests import batch, only, produce_to
from tests.broker.txn_calls import begin, end, write

COORDINATOR, OTHER = 1, 2
"""Broker 1 coordinates groups and transactions and leads t-0, broker 2 leads t-1."""

Row = dict[str, Any]


class Pair:
    """Two brokers, and the group `g` at its coordinator."""

    def __init__(self, brokers: Brokers) -> None:
        self.brokers = brokers
        self.client = brokers.clients[COORDINATOR]
        self.broker = brokers.worlds[COORDINATOR].broker

    async def produce(self, partition: int, *values: bytes) -> None:
        client = self.brokers.clients[COORDINATOR if partition == 0 else OTHER]
        reply = only(await client.ask(produce_to("t", (partition, batch(*values))), 9))
        assert reply.error_code == 0

    async def commit(self, **offsets: int) -> None:
        """Offsets of p0 and p1."""
        request = commit_request({int(name[1:]): offset for name, offset in offsets.items()})
        assert set(codes(await self.client.ask(request, 8))) == {0}

    def rows(self) -> list[Row]:
        _, _, body = self.broker.groups.lags.answer({})
        [group] = json.loads(b"".join(body))["groups"]
        found: list[Row] = group["partitions"]
        return found

    async def until(self, condition: Callable[[list[Row]], object]) -> list[Row]:
        """Sample until the partitions of the group are as expected."""
        async with asyncio.timeout(20):
            while not condition(rows := self.rows()):
                await self.broker.groups.lags.sample()
                await asyncio.sleep(0.01)
        return rows


def play(folder: Path, scenario: Callable[[Pair], Awaitable[None]]) -> None:
    async def run() -> None:
        async with Brokers(folder, {}) as brokers:
            await brokers.create(TRANSACTION_STATE, [COORDINATOR])
            await brokers.create(CONSUMER_OFFSETS, [COORDINATOR])
            await brokers.create("t", [COORDINATOR, OTHER])
            pair = Pair(brokers)
            await pair.client.ask(FindCoordinatorRequest(key="g"), 1)
            await pair.client.ask(commit_request({0: 0}), 8)
            await loaded(brokers.worlds[COORDINATOR])
            await scenario(pair)

    asyncio.run(run())


def test_both_partitions_are_reported_alike(tmp_path):
    async def scenario(pair: Pair) -> None:
        await pair.commit(p0=0, p1=0)
        await pair.until(lambda rows: [row["end"] for row in rows] == [0, 0])
        for partition in (0, 1):
            await pair.produce(partition, b"one", b"two", b"three")
        await pair.commit(p0=1, p1=1)
        rows = await pair.until(lambda rows: [row["end"] for row in rows] == [3, 3])
        for row in rows:
            assert (row["committed"], row["lag"], row["reason"]) == (1, 2, None)
            assert row["lag_seconds"] >= 0
        await pair.commit(p0=3, p1=3)
        rows = await pair.until(lambda rows: [row["committed"] for row in rows] == [3, 3])
        assert [(row["lag"], row["lag_seconds"]) for row in rows] == [(0, 0), (0, 0)]

    play(tmp_path, scenario)


def test_older_records_are_fetched_for_their_timestamps(tmp_path):
    async def scenario(pair: Pair) -> None:
        for partition in (0, 1):
            await pair.produce(partition, b"one", b"two", b"three")
        await pair.commit(p0=1, p1=1)
        rows = await pair.until(
            lambda rows: len(rows) == 2 and all(row["lag_seconds"] is not None for row in rows)
        )
        assert [row["reason"] for row in rows] == [BY_RECORD_TIME] * 2
        [request] = pair.brokers.peers[COORDINATOR].of(FetchRequest)
        assert request.topics[0].partitions[0].fetch_offset == 1

    play(tmp_path, scenario)


def test_transactions(tmp_path):
    async def scenario(pair: Pair) -> None:
        await pair.commit(p0=0, p1=0)
        await pair.until(lambda rows: [row["end"] for row in rows] == [0, 0])
        who = await begin(pair.client)
        for partition in (0, 1):
            client = pair.brokers.clients[COORDINATOR if partition == 0 else OTHER]
            assert await write(client, "x", who, b"v", partition=partition) == 0
        rows = await pair.until(lambda rows: [row["end"] for row in rows] == [1, 1])
        assert [(row["lag_seconds"], row["reason"]) for row in rows] == [(0, OPEN_TRANSACTION)] * 2
        assert (await end(pair.client, "x", who)).error_code == 0
        rows = await pair.until(lambda rows: [row["end"] for row in rows] == [2, 2])
        await pair.until(lambda rows: all(row["reason"] is None for row in rows))
        await pair.commit(p0=1, p1=1)
        rows = await pair.until(lambda rows: [row["reason"] for row in rows] == [NO_RECORD] * 2)
        assert [(row["lag"], row["lag_seconds"]) for row in rows] == [(1, 0), (1, 0)]

    play(tmp_path, scenario)


def test_records_that_are_deleted(tmp_path):
    async def scenario(pair: Pair) -> None:
        await pair.commit(p0=0, p1=0)
        await pair.until(lambda rows: [row["end"] for row in rows] == [0, 0])
        for partition in (0, 1):
            await pair.produce(partition, b"one", b"two", b"three")
            client = pair.brokers.clients[COORDINATOR if partition == 0 else OTHER]
            topic = DeleteRecordsTopic("t", [DeleteRecordsPartition(partition, 3)])
            reply = await client.ask(DeleteRecordsRequest([topic], 10_000), 2)
            assert reply.topics[0].partitions[0].error_code == 0
        rows = await pair.until(lambda rows: [row["reason"] for row in rows] == [NO_RECORD] * 2)
        assert [(row["lag"], row["lag_seconds"]) for row in rows] == [(3, 0), (3, 0)]

    play(tmp_path, scenario)


def test_a_coordinator_that_is_replaced_reports_nothing(tmp_path):
    async def scenario(pair: Pair) -> None:
        await pair.commit(p0=0, p1=0)
        await pair.until(lambda rows: [row["end"] for row in rows] == [0, 0])
        lags = pair.broker.groups.lags
        await pair.brokers.change(CONSUMER_OFFSETS, 0, OTHER)
        _, _, body = lags.answer({})
        assert json.loads(b"".join(body))["groups"] == []
        assert all(not list(family.samples) for family in lags.collect() if family is not None)
        await lags.sample()
        assert not lags.tracker.groups and not lags.tracker.partitions

    play(tmp_path, scenario)


def test_a_leader_that_does_not_answer(tmp_path):
    async def scenario(pair: Pair) -> None:
        peers = pair.brokers.peers[COORDINATOR]
        peers.unreachable.add("ListOffsets")
        await pair.commit(p0=0, p1=0)
        rows = await pair.until(lambda rows: len(rows) == 2 and "broker 2" in str(rows[1]["reason"]))
        assert rows[0]["end"] == 0
        assert (rows[1]["end"], rows[1]["lag"], rows[1]["lag_seconds"]) == (None, None, None)
        peers.unreachable.clear()
        # A request without an answer delays no other sample, and is not repeated.
        peers.silent.add("ListOffsets")
        sent = len(peers.of(ListOffsetsRequest))
        for number in range(1, 4):
            await pair.produce(0, b"v")
            await pair.until(partial(_ends_at, number))
        assert len(peers.of(ListOffsetsRequest)) <= sent + 2

    play(tmp_path, scenario)


def _ends_at(end: int, rows: list[Row]) -> bool:
    return bool(rows[0]["end"] == end)


def test_requests_of_a_round_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(remote_ends, "PARTITIONS_PER_REQUEST", 2)
    monkeypatch.setattr(remote_ends, "PARTITIONS_PER_ROUND", 5)

    async def scenario(pair: Pair) -> None:
        await pair.brokers.create("many", [OTHER] * 12)
        request = commit_request(dict.fromkeys(range(12), 0), topic="many")
        assert set(codes(await pair.client.ask(request, 8))) == {0}
        await pair.until(lambda rows: sum(row["topic"] == "many" and row["end"] == 0 for row in rows) == 12)
        for request in pair.brokers.peers[COORDINATOR].of(ListOffsetsRequest):
            assert sum(len(topic.partitions) for topic in request.topics) <= 2

    play(tmp_path, scenario)
