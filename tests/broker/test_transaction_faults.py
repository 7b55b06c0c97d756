"""Transactions after restarts and timeouts, with slow disks, and with lost or corrupt logs."""

import asyncio
from pathlib import Path

import pytest

from runnel.broker.runtime.txn_markers import MarkerSender
from runnel.controller.values import TRANSACTION_STATE
from runnel.messages.add_partitions_to_txn import (
    AddPartitionsToTxnTopic,
)
from runnel.messages.delete_topics import DeleteTopicsRequest
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition
from runnel.server.shells import SystemClock
from tests.broker.txn_calls import (
    NONE,
    SETTINGS,
    Scenario,
    add_request,
    begin,
    committed,
    describe,
    end,
    init,
    play,
    write,
)
from tests.broker.world import BrokerWorld, Client
from tests.stored import stored_batches


def test_restart_restores_open_transactions_and_completes_prepared_ones(tmp_path: Path, monkeypatch) -> None:
    holders: dict[str, tuple[int, int]] = {}

    async def first(world: BrokerWorld, client: Client) -> None:
        # The broker crashes after the prepare record and before the markers.
        monkeypatch.setattr(MarkerSender, "send", lambda *_: None)
        for name, partition in (("open", 0), ("ended", 1)):
            holders[name] = await begin(client, name)
            assert await write(client, name, holders[name], name.encode(), partition=partition) == NONE
        assert (await end(client, "ended", holders["ended"])).error_code == NONE
        assert (await describe(client, "ended")).transaction_state == "PrepareCommit"
        assert await committed(client, 1) == []
        monkeypatch.undo()

    async def second(world: BrokerWorld, client: Client) -> None:
        assert (await describe(client, "ended")).transaction_state == "CompleteCommit"
        assert await committed(client, 1) == [b"ended"]
        assert (await describe(client, "open")).transaction_state == "Ongoing"
        assert await committed(client, 0) == []
        assert (await end(client, "ended", holders["ended"])).producer_epoch == 1
        assert (await end(client, "open", holders["open"])).error_code == NONE
        assert await committed(client, 0) == [b"open"]

    play(tmp_path, first)
    play(tmp_path, second)


def test_deleted_topic_does_not_block_completion(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        await world.create("gone")
        who = await begin(client)
        topics = AddPartitionsToTxnTopic("t", [0]), AddPartitionsToTxnTopic("gone", [0])
        await client.ask(add_request("x", who, 3, *topics), 3)
        await client.ask(DeleteTopicsRequest(topic_names=["gone"]), 5)
        assert (await end(client, "x", who)).error_code == NONE
        assert (await describe(client, "x")).transaction_state == "CompleteCommit"

    play(tmp_path, scenario)


def advance_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """Advance both clocks beyond the transaction timeout, independent of the speed of the machine."""
    now_ms, monotonic_ms = SystemClock.now_ms, SystemClock.monotonic_ms
    monkeypatch.setattr(SystemClock, "now_ms", lambda clock: now_ms(clock) + 60_000)
    monkeypatch.setattr(SystemClock, "monotonic_ms", lambda clock: monotonic_ms(clock) + 60_000)


def test_transaction_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        who = await begin(client)
        assert await write(client, "x", who, b"late") == NONE
        advance_a_minute(monkeypatch)
        while (await describe(client, "x")).transaction_state != "CompleteAbort":
            await asyncio.sleep(0.01)
        assert await write(client, "x", who, b"later", sequence=1) == ErrorCode.INVALID_PRODUCER_EPOCH.code
        assert (await end(client, "x", who)).error_code == ErrorCode.INVALID_TXN_STATE.code
        reply = await end(client, "x", who, is_commit=False)
        assert (reply.error_code, reply.producer_epoch) == (NONE, 1)

    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "5"}
    play(tmp_path, scenario, **settings)


def test_unused_transactional_ids_expire(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        await begin(client)
        while (await describe(client, "x")).error_code == NONE:
            await asyncio.sleep(0.01)
        # A returning producer gets a new producer id.
        assert await begin(client) == (1, 0)

    settings = {
        "transaction.remove.expired.transaction.cleanup.interval.ms": "5",
        "transactional.id.expiration.ms": "1",
    }
    play(tmp_path, scenario, **settings)


def test_responses_wait_for_the_flush_policy(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        who = await begin(client)
        for number in range(3):
            who = who[0], number
            assert await write(client, "x", who, b"%d" % number) == NONE
            log = world.broker.partitions[TopicPartition(TRANSACTION_STATE, 0)].log
            end_offset = log.end_offset
            assert (await end(client, "x", who)).producer_epoch == number + 1
            assert log.durable_offset > end_offset
            while (await describe(client, "x")).transaction_state != "CompleteCommit":
                await asyncio.sleep(0)
        assert await committed(client) == [b"0", b"1", b"2"]

    play(tmp_path, scenario, log_flush_policy="commit", transaction_state_log_num_partitions="1")


def test_shard_reloads_after_its_log_was_truncated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        assert await write(client, "x", await begin(client), b"hangs") == NONE
        driver = world.broker.transactions.driver_of("x")
        # As after the truncation that follows a failed sync.
        driver._end_offset += 1
        advance_a_minute(monkeypatch)
        partition = world.broker.partition("t", 0)
        while partition.last_stable_offset < partition.high_watermark:
            await asyncio.sleep(0.01)
        assert (await describe(client, "x")).transaction_state == "CompleteAbort"
        assert world.broker.transactions.driver_of("x") is not driver

    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "20"}
    play(tmp_path, scenario, **settings)


def test_shard_with_a_corrupt_batch_makes_no_decisions(tmp_path: Path) -> None:
    places: list[int] = []

    async def first(world: BrokerWorld, client: Client) -> None:
        who = await begin(client)
        log = world.broker.partitions[TopicPartition(TRANSACTION_STATE, 0)].log
        places.append(sum(map(len, stored_batches(log, 0, log.end_offset))))
        assert await write(client, "x", who, b"a") == NONE
        assert (await end(client, "x", who)).error_code == NONE

    async def second(world: BrokerWorld, client: Client) -> None:
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.code
        for _ in range(3):
            assert (await init(client)).error_code == loading
            await asyncio.sleep(0)

    play(tmp_path, first, transaction_state_log_num_partitions="1")
    path = tmp_path / f"{TRANSACTION_STATE}-0" / f"{0:020}.log"
    stored = bytearray(path.read_bytes())
    stored[places[0] + 80] ^= 1
    path.write_bytes(stored)
    asyncio.run(_asked_while_loading(tmp_path, second))


async def _asked_while_loading(folder: Path, scenario: Scenario) -> None:
    async with BrokerWorld(folder, {**SETTINGS, "transaction.state.log.num.partitions": "1"}) as world:
        await scenario(world, await world.connect())
