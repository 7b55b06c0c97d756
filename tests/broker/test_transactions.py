"""Transactions over the wire: every version and error."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from runnel.batch.records import iterate_records
from runnel.controller.values import CONSUMER_OFFSETS, TRANSACTION_STATE
from runnel.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from runnel.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from runnel.messages.api_versions import ApiVersionsRequest
from runnel.messages.find_coordinator import FindCoordinatorRequest
from runnel.messages.list_transactions import ListTransactionsRequest
from runnel.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from runnel.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition
from tests.broker.txn_calls import (
    CLASSIC,
    NEW,
    NONE,
    SETTINGS,
    add_request,
    added,
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


@pytest.mark.parametrize("version", range(6))
def test_transaction_in_every_version(tmp_path: Path, version: int) -> None:
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
def test_fencing_error_by_version(tmp_path: Path, version: int) -> None:
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


def test_invalid_requests(tmp_path: Path) -> None:
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
        unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING.code
        assert (await end(client, "unknown", who)).error_code == unknown
        assert (await describe(client, "unknown")).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND.code

    play(tmp_path, scenario)


def test_verify_only_requests_of_brokers(tmp_path: Path) -> None:
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


def test_state_topic_is_created_on_first_use(tmp_path: Path) -> None:
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
            who = await begin(client)
            # So is __consumer_offsets, if a transaction is its first user.
            assert CONSUMER_OFFSETS not in world.broker.metadata.image.topics
            assert (await client.ask(AddOffsetsToTxnRequest("x", *who, "g"), 4)).error_code == NONE
            assert (await describe(client, "x")).topics[0].topic == CONSUMER_OFFSETS

    asyncio.run(run())


@pytest.mark.parametrize("version", [1, 2])
def test_abort_of_a_hanging_transaction(tmp_path: Path, version: int) -> None:
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


def test_list_transactions_filters(tmp_path: Path) -> None:
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


def formats(world: BrokerWorld) -> set[int]:
    """The versions of all records in __transaction_state."""
    logs = [
        partition.log
        for name, partition in world.broker.partitions.items()
        if name.topic == TRANSACTION_STATE
    ]
    return {
        int.from_bytes(bytes(record.value or b"")[:2])
        for log in logs
        for stored in stored_batches(log, 0, log.end_offset)
        for record in iterate_records(stored)
    }


def test_downgrade_and_upgrade_of_transaction_version(tmp_path: Path) -> None:
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
        # InitProducerId fences the producer of an open transaction.
        who = await begin(client)
        assert formats(world) == {0}
        await client.ask(add_request("x", who, 3, AddPartitionsToTxnTopic("t", [0])), 3)
        assert (await init(client)).error_code == ErrorCode.CONCURRENT_TRANSACTIONS.code
        assert await begin(client) == (who[0], 2)
        assert (await end(client, "x", who, version=CLASSIC)).error_code == ErrorCode.PRODUCER_FENCED.code

    async def second(world: BrokerWorld, client: Client) -> None:
        assert await level(client) == 0
        assert (await describe(client, "x")).producer_epoch == 2

        update = FeatureUpdateKey("transaction.version", 2, upgrade_type=1)
        assert (await client.ask(UpdateFeaturesRequest(60_000, [update]), 2)).error_code == NONE
        await begin(client)
        assert formats(world) == {0, 1}

    play(tmp_path, first)
    play(tmp_path, second)
