"""Transactions over the wire: every version, who is refused how, and what a restart finds."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from runnel.batch.header import read_header
from runnel.batch.records import iterate_records
from runnel.broker import transactions
from runnel.controller.values import TRANSACTION_STATE
from runnel.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from runnel.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from runnel.messages.api_versions import ApiVersionsRequest
from runnel.messages.delete_topics import DeleteTopicsRequest
from runnel.messages.describe_transactions import DescribeTransactionsRequest
from runnel.messages.end_txn import EndTxnRequest
from runnel.messages.find_coordinator import FindCoordinatorRequest
from runnel.messages.init_producer_id import InitProducerIdRequest
from runnel.messages.list_transactions import ListTransactionsRequest
from runnel.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from runnel.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition
from tests.broker.requests import batch, fetch_from, only, produce_to
from tests.broker.world import BrokerWorld, Client

NONE = ErrorCode.NONE.code
SETTINGS = {"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3"}
CLASSIC, NEW = 4, 5

Scenario = Callable[[BrokerWorld, Client], Awaitable[None]]


def play(folder: Path, scenario: Scenario, **settings: str) -> None:
    """Run a scenario against a broker of its own; the broker is stopped in an orderly way."""

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
    """Take an id; the producer and its epoch."""
    reply = await init(client, name)
    assert reply.error_code == NONE
    return reply.producer_id, reply.producer_epoch


async def write(client: Client, name: str, who: tuple[int, int], value: bytes, **options: Any) -> int:
    """Produce one transactional record as clients of the new protocol do; the error."""
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
    """What lies below the last stable offset, markers left out."""
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


@pytest.mark.parametrize("version", range(6))
def test_a_transaction_in_every_version(tmp_path: Path, version: int) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        reply = await init(client, version=version)
        assert (reply.error_code, reply.producer_epoch) == (NONE, 0)
        who = reply.producer_id, 0
        request = add_request("x", who, version, AddPartitionsToTxnTopic("t", [0, 1]))
        assert added(await client.ask(request, version), version) == {("t", 0): NONE, ("t", 1): NONE}
        offsets = AddOffsetsToTxnRequest("x", *who, "x")
        assert (await client.ask(offsets, min(version, 4))).error_code == NONE
        assert await write(client, "x", who, b"a", version=11) == NONE
        state = await describe(client, "x")
        assert state.transaction_state == "Ongoing"
        assert [(topic.topic, len(topic.partitions)) for topic in state.topics] == [
            ("__consumer_offsets", 1),
            ("t", 2),
        ]
        assert await committed(client) == []
        reply = await end(client, "x", who, version=version)
        expected = (NONE, who[0], 1) if version == NEW else (NONE, -1, -1)
        assert (reply.error_code, reply.producer_id, reply.producer_epoch) == expected
        state = await describe(client, "x")
        assert (state.transaction_state, state.topics) == ("CompleteCommit", [])
        assert await committed(client) == [b"a"]

    play(tmp_path, scenario)


@pytest.mark.parametrize("version", range(6))
def test_who_was_fenced_hears_of_it_as_it_can(tmp_path: Path, version: int) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        who = await begin(client)
        assert await begin(client) == (who[0], 1)
        fenced, stale = ErrorCode.PRODUCER_FENCED.code, ErrorCode.INVALID_PRODUCER_EPOCH.code
        reply = await end(client, "x", who, version=version)
        assert reply.error_code == (fenced if version >= 2 else stale)
        reply = await client.ask(AddOffsetsToTxnRequest("x", *who, "x"), min(version, 4))
        assert reply.error_code == (fenced if version >= 2 else stale)
        request = add_request("x", who, version, AddPartitionsToTxnTopic("t", [0]))
        assert added(await client.ask(request, version), version) == {
            ("t", 0): fenced if version >= 2 else stale
        }
        if version >= 3:
            reply = await init(client, version=version, producer_id=who[0], producer_epoch=7)
            assert reply.error_code == (fenced if version >= 4 else stale)
            assert (reply.producer_id, reply.producer_epoch) == (-1, -1)

    play(tmp_path, scenario)


def test_what_cannot_be_asked(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        who = await begin(client)
        topics = AddPartitionsToTxnTopic("t", [0, 9]), AddPartitionsToTxnTopic("nowhere", [0])
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code
        assert added(await client.ask(add_request("x", who, 3, *topics), 3), 3) == {
            ("t", 0): ErrorCode.OPERATION_NOT_ATTEMPTED.code,
            ("t", 9): unknown,
            ("nowhere", 0): unknown,
        }
        assert (await describe(client, "x")).transaction_state == "Empty"
        invalid = ErrorCode.INVALID_REQUEST.code
        assert (await init(client, "")).error_code == invalid
        assert (await init(client, "x", producer_id=1)).error_code == invalid
        assert (await end(client, "", who)).error_code == invalid
        assert (await describe(client, "")).error_code == invalid
        assert (await client.ask(AddOffsetsToTxnRequest("", *who, "g"), 4)).error_code == invalid
        too_long = await init(client, "y", transaction_timeout_ms=900_001)
        assert too_long.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT.code
        nobody = ErrorCode.INVALID_PRODUCER_ID_MAPPING.code
        assert (await end(client, "nobody", who)).error_code == nobody
        assert (await describe(client, "nobody")).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND.code

    play(tmp_path, scenario)


def test_other_brokers_ask_whether_a_partition_is_in_a_transaction(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        who = await begin(client)
        await client.ask(add_request("x", who, 3, AddPartitionsToTxnTopic("t", [0])), 3)
        asked = [
            AddPartitionsToTxnTransaction("x", *who, True, [AddPartitionsToTxnTopic("t", [0, 1])]),
            AddPartitionsToTxnTransaction("y", *who, True, [AddPartitionsToTxnTopic("t", [0])]),
        ]
        reply = await client.ask(AddPartitionsToTxnRequest(asked), 5)
        outcomes = [
            [part.partition_error_code for part in result.topic_results[0].results_by_partition]
            for result in reply.results_by_transaction
        ]
        assert outcomes == [
            [NONE, ErrorCode.TRANSACTION_ABORTABLE.code],
            [ErrorCode.INVALID_PRODUCER_ID_MAPPING.code],
        ]

    play(tmp_path, scenario)


def test_the_state_topic_is_made_when_it_is_first_needed(tmp_path: Path) -> None:
    async def run() -> None:
        async with BrokerWorld(tmp_path, SETTINGS) as world:
            client = await world.connect()
            assert (await init(client)).error_code == ErrorCode.NOT_COORDINATOR.code
            found = await client.ask(FindCoordinatorRequest(coordinator_keys=["x", "y"], key_type=1), 4)
            assert [(one.error_code, one.node_id) for one in found.coordinators] == [(NONE, 1), (NONE, 1)]
            topic = world.broker.metadata.image.topics[TRANSACTION_STATE]
            assert len(topic.partitions) == 3
            log = world.broker.partitions[TopicPartition(TRANSACTION_STATE, 0)].log
            assert log.config.cleanup_compact and not log.config.cleanup_delete
            assert (await init(client)).error_code == NONE

    asyncio.run(run())


def test_a_restart_finds_open_transactions_and_goes_on_with_ended_ones(tmp_path: Path, monkeypatch) -> None:
    holders: dict[str, tuple[int, int]] = {}

    async def first(world: BrokerWorld, client: Client) -> None:
        # The broker dies after the decision and before the markers.
        monkeypatch.setattr(transactions, "send_markers", lambda *_: None)
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


def test_a_deleted_topic_does_not_keep_a_transaction_from_ending(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        await world.create("gone")
        who = await begin(client)
        topics = AddPartitionsToTxnTopic("t", [0]), AddPartitionsToTxnTopic("gone", [0])
        await client.ask(add_request("x", who, 3, *topics), 3)
        await client.ask(DeleteTopicsRequest(topic_names=["gone"]), 5)
        assert (await end(client, "x", who)).error_code == NONE
        assert (await describe(client, "x")).transaction_state == "CompleteCommit"

    play(tmp_path, scenario)


def test_transactions_that_take_too_long_are_aborted(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        reply = await init(client, transaction_timeout_ms=1)
        who = reply.producer_id, reply.producer_epoch
        assert await write(client, "x", who, b"late") == NONE
        while (await describe(client, "x")).transaction_state != "CompleteAbort":
            await asyncio.sleep(0.01)
        assert await write(client, "x", who, b"later", sequence=1) == ErrorCode.INVALID_PRODUCER_EPOCH.code
        assert (await end(client, "x", who)).error_code == ErrorCode.INVALID_TXN_STATE.code
        reply = await end(client, "x", who, is_commit=False)
        assert (reply.error_code, reply.producer_epoch) == (NONE, 1)

    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "5"}
    play(tmp_path, scenario, **settings)


def test_ids_that_nobody_uses_are_forgotten(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        await begin(client)
        while (await describe(client, "x")).error_code == NONE:
            await asyncio.sleep(0.01)
        # The one who comes back is somebody else.
        assert await begin(client) == (1, 0)

    settings = {
        "transaction.remove.expired.transaction.cleanup.interval.ms": "5",
        "transactional.id.expiration.ms": "1",
    }
    play(tmp_path, scenario, **settings)


@pytest.mark.parametrize("version", [1, 2])
def test_a_hanging_transaction_is_ended_by_hand(tmp_path: Path, version: int) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        who = await begin(client)
        assert await write(client, "x", who, b"hangs") == NONE
        topics = [WritableTxnMarkerTopic("t", [0, 9]), WritableTxnMarkerTopic("nowhere", [0])]
        request = WriteTxnMarkersRequest([WritableTxnMarker(*who, False, topics, 0, 0)])
        reply = await client.ask(request, version)
        outcomes = {
            (topic.name, part.partition_index): part.error_code
            for topic in reply.markers[0].topics
            for part in topic.partitions
        }
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code
        assert outcomes == {("t", 0): NONE, ("t", 9): unknown, ("nowhere", 0): unknown}
        partition = world.broker.partition("t", 0)
        assert partition.last_stable_offset == partition.high_watermark
        assert (await client.ask(WriteTxnMarkersRequest([]), version)).markers == []

    play(tmp_path, scenario)


def test_transactions_are_listed_by_state_producer_age_and_pattern(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        async def listed(version: int = 2, **filters: Any) -> list[str]:
            reply = await client.ask(ListTransactionsRequest(**filters), version)
            assert reply.error_code == NONE
            return sorted(state.transactional_id for state in reply.transaction_states)

        who = {name: await begin(client, name) for name in ("alpha", "beta", "gamma")}
        assert await write(client, "alpha", who["alpha"], b"a") == NONE
        assert await listed() == await listed(0) == ["alpha", "beta", "gamma"]
        assert await listed(state_filters=["Ongoing"]) == ["alpha"]
        assert await listed(state_filters=["Empty", "CompleteAbort"]) == ["beta", "gamma"]
        assert await listed(producer_id_filters=[who["gamma"][0], 99]) == ["gamma"]
        assert await listed(state_filters=["Ongoing"], duration_filter=60_000) == []
        assert await listed(transactional_id_pattern=".*m.*|beta") == ["beta", "gamma"]
        assert await listed(transactional_id_pattern="") == ["alpha", "beta", "gamma"]
        reply = await client.ask(ListTransactionsRequest(state_filters=["Lost"]), 0)
        assert (reply.unknown_state_filters, reply.transaction_states) == (["Lost"], [])
        reply = await client.ask(ListTransactionsRequest(transactional_id_pattern="("), 2)
        assert reply.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION.code

    play(tmp_path, scenario)


def test_the_level_of_the_protocol_can_be_lowered_and_raised(tmp_path: Path) -> None:
    async def level(client: Client) -> int:
        reply = await client.ask(ApiVersionsRequest("test", "1"), 4)
        return next(
            (f.max_version_level for f in reply.finalized_features if f.name == "transaction.version"), 0
        )

    async def first(world: BrokerWorld, client: Client) -> None:
        assert await level(client) == 2
        for wanted, kind in ((0, 2), (1, 1), (0, 2)):
            update = FeatureUpdateKey("transaction.version", wanted, upgrade_type=kind)
            assert (await client.ask(UpdateFeaturesRequest(60_000, [update]), 2)).error_code == NONE
            assert await level(client) == wanted
        # Who takes an id from an open transaction fences its holder all the same.
        who = await begin(client)
        await client.ask(add_request("x", who, 3, AddPartitionsToTxnTopic("t", [0])), 3)
        assert (await init(client)).error_code == ErrorCode.CONCURRENT_TRANSACTIONS.code
        assert await begin(client) == (who[0], 2)
        assert (await end(client, "x", who, version=CLASSIC)).error_code == ErrorCode.PRODUCER_FENCED.code

    async def second(world: BrokerWorld, client: Client) -> None:
        assert await level(client) == 0
        assert (await describe(client, "x")).producer_epoch == 2

    play(tmp_path, first)
    play(tmp_path, second)


def test_answers_wait_for_the_disk_where_the_policy_says_so(tmp_path: Path) -> None:
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


def test_a_shard_that_lost_its_log_is_loaded_anew_without_being_asked(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        reply = await init(client, transaction_timeout_ms=100)
        assert await write(client, "x", (reply.producer_id, 0), b"hangs") == NONE
        driver = world.broker.transactions.driver_of("x")
        # As if the log had been cut behind its back after a sync that failed.
        driver._end_offset += 1
        partition = world.broker.partition("t", 0)
        while partition.last_stable_offset < partition.high_watermark:
            await asyncio.sleep(0.01)
        assert (await describe(client, "x")).transaction_state == "CompleteAbort"
        assert world.broker.transactions.driver_of("x") is not driver

    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "20"}
    play(tmp_path, scenario, **settings)


def test_a_shard_with_a_damaged_batch_decides_nothing(tmp_path: Path) -> None:
    places: list[int] = []

    async def first(world: BrokerWorld, client: Client) -> None:
        who = await begin(client)
        log = world.broker.partitions[TopicPartition(TRANSACTION_STATE, 0)].log
        places.append(sum(map(len, log.batches(0, log.end_offset))))
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
