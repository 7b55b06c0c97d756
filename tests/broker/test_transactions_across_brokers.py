"""Transactions whose coordinator, partitions and groups are on different brokers."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from runnel.broker.runtime import txn_markers
from runnel.broker.runtime.bug_reports import BugReports
from runnel.broker.runtime.replicated_log import ReplicatedLog
from runnel.controller.values import CONSUMER_OFFSETS, TRANSACTION_STATE
from runnel.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from runnel.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from runnel.messages.find_coordinator import FindCoordinatorRequest
from runnel.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from runnel.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition
from runnel.replica.follower import FollowerReplica
from runnel.replica.leader import LeaderReplica
from tests.broker.brokers import Brokers
from tests.broker.group_calls import codes, fetch
from tests.broker.txn_calls import CLASSIC, NEW, NONE, add_request, begin, committed, describe, end, write
from tests.broker.world import Client

COORDINATOR, OTHER = 1, 2
"""Broker 1 coordinates transactions and leads t-0, broker 2 coordinates groups and leads t-1."""

Scenario = Callable[[Brokers], Awaitable[None]]


def play(folder: Path, scenario: Scenario) -> None:
    async def run() -> None:
        async with Brokers(folder, {}) as brokers:
            await brokers.create(TRANSACTION_STATE, [COORDINATOR])
            await brokers.create(CONSUMER_OFFSETS, [OTHER])
            await brokers.create("t", [COORDINATOR, OTHER])
            await scenario(brokers)

    asyncio.run(run())


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.002)


def partition(brokers: Brokers, node_id: int, topic: str, index: int) -> ReplicatedLog:
    return brokers.worlds[node_id].broker.partitions[TopicPartition(topic, index)]


async def add(client: Client, who: tuple[int, int], version: int, name: str = "x") -> None:
    """Add both partitions, as producers that do not bump their epoch do."""
    if version == CLASSIC:
        reply = await client.ask(add_request(name, who, 3, AddPartitionsToTxnTopic("t", [0, 1])), 3)
        errors = [
            part.partition_error_code
            for topic in reply.results_by_topic_v3_and_below
            for part in topic.results_by_partition
        ]
        assert errors == [NONE, NONE]


async def produce(brokers: Brokers, index: int, who: tuple[int, int], version: int, **options: Any) -> int:
    """Write to t-0 or t-1 at its leader; returns the error code."""
    client = brokers.clients[COORDINATOR if index == 0 else OTHER]
    api_version = options.pop("api_version", 12 if version == NEW else 11)
    return await write(client, "x", who, b"v%d" % index, partition=index, version=api_version, **options)


async def completed(client: Client, name: str = "x", state: str = "CompleteCommit") -> None:
    async with asyncio.timeout(20):
        while (await describe(client, name)).transaction_state != state:
            await asyncio.sleep(0.002)


def offsets_request(who: tuple[int, int], offset: int) -> TxnOffsetCommitRequest:
    topics = [TxnOffsetCommitRequestTopic("t", [TxnOffsetCommitRequestPartition(0, offset)])]
    return TxnOffsetCommitRequest(
        transactional_id="x", group_id="g", producer_id=who[0], producer_epoch=who[1], topics=topics
    )


def test_clients_are_sent_to_the_broker_that_leads_the_shard(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        for client in brokers.clients.values():
            for kind, leader in ((0, OTHER), (1, COORDINATOR)):
                found = await client.ask(FindCoordinatorRequest(key="x", key_type=kind), 1)
                port = brokers.worlds[leader].broker.port
                assert (found.error_code, found.node_id, found.port) == (NONE, leader, port)
        reply = await brokers.clients[OTHER].ask(add_request("x", (0, 0), 3), 3)
        assert reply.results_by_topic_v3_and_below == []
        not_coordinator = ErrorCode.NOT_COORDINATOR.code
        assert (await describe(brokers.clients[OTHER], "x")).error_code == not_coordinator
        await brokers.change(TRANSACTION_STATE, 0, leader=-1)
        found = await brokers.clients[OTHER].ask(FindCoordinatorRequest(key="x", key_type=1), 1)
        assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE.code

    play(tmp_path, scenario)


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("version", [CLASSIC, NEW])
def test_a_transaction_over_two_brokers_with_offsets(tmp_path: Path, version: int, is_commit: bool) -> None:
    async def scenario(brokers: Brokers) -> None:
        coordinator, other = brokers.clients[COORDINATOR], brokers.clients[OTHER]
        who = await begin(coordinator)
        await add(coordinator, who, version)
        for index in (0, 1):
            assert await produce(brokers, index, who, version) == NONE
        if version == CLASSIC:
            reply = await coordinator.ask(AddOffsetsToTxnRequest("x", *who, "g"), 3)
            assert reply.error_code == NONE
        request = offsets_request(who, 7)
        assert codes(await other.ask(request, 5 if version == NEW else 4)) == [NONE]
        assert await committed(other, 1) == [] and await fetch(other, 0) == {0: -1}
        assert (await end(coordinator, "x", who, is_commit=is_commit, version=version)).error_code == NONE
        await completed(coordinator, state="CompleteCommit" if is_commit else "CompleteAbort")
        for node_id, index in ((COORDINATOR, 0), (OTHER, 1)):
            log = partition(brokers, node_id, "t", index)
            assert log.last_stable_offset == log.high_watermark == 2
        assert await fetch(other, 0) == {0: 7 if is_commit else -1}
        asked = brokers.peers[OTHER].of(AddPartitionsToTxnRequest)
        assert [transaction.verify_only for request in asked for transaction in request.transactions] == [
            version == CLASSIC
        ] * 2
        # The group's partition and t-1 are on the same broker.
        (sent,) = brokers.peers[COORDINATOR].of(WriteTxnMarkersRequest)
        assert len(sent.markers[0].topics) == 2

    play(tmp_path, scenario)


@pytest.mark.parametrize("version", [CLASSIC, NEW])
def test_markers_are_repeated_after_lost_responses(tmp_path: Path, version: int) -> None:
    async def scenario(brokers: Brokers) -> None:
        coordinator = brokers.clients[COORDINATOR]
        who = await begin(coordinator)
        for number in range(3):
            brokers.peers[COORDINATOR].lose["WriteTxnMarkers"] = number
            await add(coordinator, who, version)
            sequence = 0 if version == NEW else number
            for index in (0, 1):
                assert await produce(brokers, index, who, version, sequence=sequence) == NONE
            reply = await end(coordinator, "x", who, version=version)
            assert reply.error_code == NONE
            await completed(coordinator)
            if version == NEW:
                who = reply.producer_id, reply.producer_epoch
        assert await committed(brokers.clients[OTHER], 1) == [b"v1"] * 3
        # Three records, three markers, and three that were repeated.
        assert partition(brokers, OTHER, "t", 1).log.end_offset == 9
        assert partition(brokers, COORDINATOR, "t", 0).log.end_offset == 6

    play(tmp_path, scenario)


def test_markers_of_many_transactions_share_requests(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        count = 20

        async def run(name: str) -> None:
            client = await brokers.worlds[COORDINATOR].connect()
            other = await brokers.worlds[OTHER].connect()
            who = await begin(client, name)
            assert await write(other, name, who, name.encode(), partition=1) == NONE
            assert (await end(client, name, who)).error_code == NONE
            await completed(client, name)

        await asyncio.gather(*(run(f"x{number}") for number in range(count)))
        assert sorted(await committed(brokers.clients[OTHER], 1)) == sorted(
            f"x{number}".encode() for number in range(count)
        )
        for node_id, name, message in (
            (COORDINATOR, "WriteTxnMarkers", WriteTxnMarkersRequest),
            (OTHER, "AddPartitionsToTxn", AddPartitionsToTxnRequest),
        ):
            peers = brokers.peers[node_id]
            assert peers.in_flight_max[name] == 1
            assert len(peers.of(message)) < count

    play(tmp_path, scenario)


def test_a_silent_leader_delays_markers_only_until_it_is_replaced(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        coordinator = brokers.clients[COORDINATOR]
        who = await begin(coordinator)
        await brokers.create("u", [OTHER], COORDINATOR)
        assert await produce(brokers, 0, who, NEW) == NONE
        await coordinator.ask(add_request("x", who, 3, AddPartitionsToTxnTopic("u", [0])), 3)
        peers = brokers.peers[COORDINATOR]
        peers.silent.add("WriteTxnMarkers")
        assert (await end(coordinator, "x", who)).error_code == NONE
        await until(lambda: peers.of(WriteTxnMarkersRequest))
        assert (await describe(coordinator, "x")).transaction_state == "PrepareCommit"
        await brokers.change("u", 0, leader=COORDINATOR)
        await completed(coordinator)
        assert partition(brokers, COORDINATOR, "u", 0).log.end_offset == 1
        assert peers.in_flight["WriteTxnMarkers"] == 0

    play(tmp_path, scenario)


def test_markers_wait_for_a_leader_and_forget_deleted_topics(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        coordinator = brokers.clients[COORDINATOR]
        await brokers.create("gone", [OTHER])
        who = await begin(coordinator)
        await add(coordinator, who, CLASSIC)
        topics = AddPartitionsToTxnTopic("gone", [0])
        await coordinator.ask(add_request("x", who, 3, topics), 3)
        await brokers.change("t", 1, leader=-1)
        await brokers.remove("gone")
        assert (await end(coordinator, "x", who, version=CLASSIC)).error_code == NONE
        for _ in range(20):
            await asyncio.sleep(0.005)
        assert (await describe(coordinator, "x")).transaction_state == "PrepareCommit"
        await brokers.change("t", 1, leader=OTHER)
        await completed(coordinator)

    play(tmp_path, scenario)


def test_markers_wait_for_a_leader_whose_metadata_are_behind(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        coordinator = brokers.clients[COORDINATOR]
        records = brokers.topic("new", [OTHER])
        await brokers.submit(records, COORDINATOR)
        who = await begin(coordinator)
        await coordinator.ask(add_request("x", who, 3, AddPartitionsToTxnTopic("new", [0])), 3)
        assert (await end(coordinator, "x", who, version=CLASSIC)).error_code == NONE
        await until(lambda: len(brokers.peers[COORDINATOR].of(WriteTxnMarkersRequest)) > 2)
        assert (await describe(coordinator, "x")).transaction_state == "PrepareCommit"
        await brokers.submit(records, OTHER)
        await completed(coordinator)
        assert partition(brokers, OTHER, "new", 0).log.end_offset == 1

    play(tmp_path, scenario)


def test_a_coordinator_that_resigns_drops_its_markers_and_the_next_one_sends_them(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        coordinator = brokers.clients[COORDINATOR]
        who = await begin(coordinator)
        assert await produce(brokers, 1, who, NEW) == NONE
        peers = brokers.peers[COORDINATOR]
        peers.unreachable.add("WriteTxnMarkers")
        assert (await end(coordinator, "x", who)).error_code == NONE
        await until(lambda: len(peers.of(WriteTxnMarkersRequest)) > 1)
        shard = partition(brokers, COORDINATOR, TRANSACTION_STATE, 0)
        shard.become_follower(FollowerReplica(COORDINATOR, shard.epoch + 1, leader=OTHER))
        peers.unreachable.clear()
        peers.sent.clear()
        for _ in range(20):
            await asyncio.sleep(0.005)
        assert peers.of(WriteTxnMarkersRequest) == []
        shard.become_leader(LeaderReplica.sole(COORDINATOR, shard.epoch + 1))
        await completed(coordinator)
        (request,) = peers.of(WriteTxnMarkersRequest)
        assert request.markers[0].coordinator_epoch == shard.epoch
        assert await committed(brokers.clients[OTHER], 1) == [b"v1"]

    play(tmp_path, scenario)


def test_queued_markers_of_a_coordinator_that_resigned_are_not_sent(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        coordinator, other = brokers.clients[COORDINATOR], brokers.clients[OTHER]
        peers = brokers.peers[COORDINATOR]
        peers.silent.add("WriteTxnMarkers")
        for name in ("x", "y"):
            who = await begin(coordinator, name)
            assert await write(other, name, who, b"v", partition=1) == NONE
            assert (await end(coordinator, name, who)).error_code == NONE
        queues = brokers.worlds[COORDINATOR].broker.transactions.markers._queues
        await until(lambda: queues[OTHER].waiting)
        shard = partition(brokers, COORDINATOR, TRANSACTION_STATE, 0)
        shard.become_follower(FollowerReplica(COORDINATOR, shard.epoch + 1, leader=OTHER))
        await until(lambda: queues[OTHER].request is None)
        assert len(peers.of(WriteTxnMarkersRequest)) == 1 and not queues[OTHER].waiting

    play(tmp_path, scenario)


def marker(
    who: tuple[int, int], topic: str, *indexes: int, epoch: int = 0, version: int = 2
) -> WritableTxnMarker:
    topics = [WritableTxnMarkerTopic(topic, list(indexes))]
    return WritableTxnMarker(*who, False, topics, epoch, version)


async def mark(client: Client, *markers: WritableTxnMarker) -> dict[int, dict[tuple[str, int], int]]:
    """The outcomes by producer id, of which each is in the response once."""
    reply = await client.ask(WriteTxnMarkersRequest(list(markers)), 2)
    found = {
        result.producer_id: {
            (topic.name, part.partition_index): part.error_code
            for topic in result.topics
            for part in topic.partitions
        }
        for result in reply.markers
    }
    assert len(found) == len(reply.markers)
    return found


def test_late_markers_of_older_coordinators_and_epochs_are_rejected(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        client = brokers.clients[OTHER]
        name = ("t", 1)
        assert await mark(client, marker((5, 3), "t", 1, epoch=4)) == {5: {name: NONE}}
        end_offset = partition(brokers, OTHER, "t", 1).log.end_offset
        fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED.code
        assert await mark(client, marker((5, 4), "t", 1, epoch=3)) == {5: {name: fenced}}
        stale = ErrorCode.INVALID_PRODUCER_EPOCH.code
        for version in (0, 2):
            assert await mark(client, marker((5, 2), "t", 1, epoch=5, version=version)) == {5: {name: stale}}
        assert partition(brokers, OTHER, "t", 1).log.end_offset == end_offset
        # The same marker of the coordinator that took over is accepted.
        assert await mark(client, marker((5, 3), "t", 1, epoch=5)) == {5: {name: NONE}}

    play(tmp_path, scenario)


def test_outcomes_of_markers_are_those_that_coordinators_expect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(brokers: Brokers) -> None:
        client = brokers.clients[OTHER]
        not_leader = ErrorCode.NOT_LEADER_OR_FOLLOWER.code
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code
        assert await mark(
            client,
            marker((5, 0), "t", 0, 1, 9),
            marker((6, 0), CONSUMER_OFFSETS, 0),
            marker((5, 0), "none", 0),
            WritableTxnMarker(7, 0, True, [], 0, 2),
        ) == {
            5: {("t", 0): not_leader, ("t", 1): NONE, ("t", 9): unknown, ("none", 0): unknown},
            6: {(CONSUMER_OFFSETS, 0): NONE},
            7: {},
        }
        coordinator = brokers.clients[COORDINATOR]
        assert await mark(coordinator, marker((6, 0), CONSUMER_OFFSETS, 0)) == {
            6: {(CONSUMER_OFFSETS, 0): not_leader}
        }
        many = [marker((producer_id % 7, 0), "t", 1) for producer_id in range(300)]
        assert await mark(client, *many) == {producer_id: {("t", 1): NONE} for producer_id in range(7)}

        def bug(*_: object) -> None:
            raise KeyError("a bug")

        monkeypatch.setattr(brokers.worlds[OTHER].broker.groups, "transaction_ended", bug)
        monkeypatch.setattr(BugReports, "report", lambda *_: None)
        assert await mark(client, marker((6, 1), CONSUMER_OFFSETS, 0)) == {
            6: {(CONSUMER_OFFSETS, 0): ErrorCode.KAFKA_STORAGE_ERROR.code}
        }

    play(tmp_path, scenario)


def test_markers_that_are_not_committed_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(txn_markers, "REQUEST_TIMEOUT_MS", 20)

    async def scenario(brokers: Brokers) -> None:
        log = partition(brokers, OTHER, "t", 1)
        log.become_leader(LeaderReplica(OTHER, 1, frozenset({1, 2}), frozenset({1, 2})))
        timed_out = ErrorCode.REQUEST_TIMED_OUT.code
        outcome = await mark(brokers.clients[OTHER], marker((5, 0), "t", 1))
        assert outcome == {5: {("t", 1): timed_out}}
        log.follower_fetched(1, log.log.end_offset)
        for _ in range(5):
            await asyncio.sleep(0.002)

    play(tmp_path, scenario)


@pytest.mark.parametrize("version", [CLASSIC, NEW])
def test_clients_retry_while_the_transaction_coordinator_is_not_reached(tmp_path: Path, version: int) -> None:
    async def scenario(brokers: Brokers) -> None:
        coordinator, other = brokers.clients[COORDINATOR], brokers.clients[OTHER]
        who = await begin(coordinator)
        await add(coordinator, who, version)
        await coordinator.ask(AddOffsetsToTxnRequest("x", *who, "g"), 3)
        peers = brokers.peers[OTHER]
        peers.unreachable.add("AddPartitionsToTxn")
        request = offsets_request(who, 7)
        retried = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.code

        async def both_fail() -> None:
            assert await produce(brokers, 1, who, version) == ErrorCode.NOT_ENOUGH_REPLICAS.code
            assert codes(await other.ask(request, 5 if version == NEW else 4)) == [retried]

        await both_fail()
        peers.unreachable.clear()
        # The coordinator's answer is lost: it is asked again, and may have added the partition.
        peers.lose["AddPartitionsToTxn"] = 2
        await both_fail()
        shard = partition(brokers, COORDINATOR, TRANSACTION_STATE, 0)
        shard.become_follower(FollowerReplica(COORDINATOR, shard.epoch + 1))
        await both_fail()
        shard.become_leader(LeaderReplica.sole(COORDINATOR, shard.epoch + 1))
        shards = brokers.worlds[COORDINATOR].broker.transactions
        await until(lambda: shards._drivers and shards._drivers[0].is_loaded)
        assert await produce(brokers, 1, who, version) == NONE
        assert codes(await other.ask(request, 5 if version == NEW else 4)) == [NONE]
        assert (await end(coordinator, "x", who, version=version)).error_code == NONE
        await completed(coordinator)
        assert await committed(other, 1) == [b"v1"] and await fetch(other, 0) == {0: 7}

    play(tmp_path, scenario)


def test_a_silent_coordinator_delays_producers_only_until_it_is_replaced(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        who = await begin(brokers.clients[COORDINATOR])
        peers = brokers.peers[OTHER]
        peers.silent.add("AddPartitionsToTxn")
        failing = asyncio.ensure_future(produce(brokers, 1, who, NEW))
        await until(lambda: peers.of(AddPartitionsToTxnRequest))
        await brokers.change(TRANSACTION_STATE, 0, leader=-1)
        assert await failing == ErrorCode.NOT_ENOUGH_REPLICAS.code
        assert peers.in_flight["AddPartitionsToTxn"] == 0

    play(tmp_path, scenario)


def test_transactions_that_are_not_verified(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        coordinator = brokers.clients[COORDINATOR]
        who = await begin(coordinator)
        abortable = ErrorCode.TRANSACTION_ABORTABLE.code
        assert await produce(brokers, 1, who, CLASSIC) == abortable
        assert await produce(brokers, 1, who, CLASSIC, api_version=10) == ErrorCode.INVALID_TXN_STATE.code
        stranger = who[0] + 100, 0
        mapping = ErrorCode.INVALID_PRODUCER_ID_MAPPING.code
        assert await produce(brokers, 1, stranger, NEW) == mapping
        assert await begin(coordinator) == (who[0], 1)
        assert await produce(brokers, 1, who, NEW) == ErrorCode.INVALID_PRODUCER_EPOCH.code
        assert partition(brokers, OTHER, "t", 1).log.end_offset == 0

    play(tmp_path, scenario)
