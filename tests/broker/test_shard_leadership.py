"""Coordinator shards move with the leadership of their partitions, and answer only from committed state."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runnel.broker.runtime import leadership_proof
from runnel.broker.runtime.replicated_log import ReplicatedLog
from runnel.broker.runtime.shards import Shards
from runnel.broker.runtime.txn_markers import MarkerSender
from runnel.controller.values import TRANSACTION_STATE
from runnel.messages.end_txn import EndTxnRequest
from runnel.messages.list_groups import ListGroupsRequest
from runnel.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition
from runnel.model.log_config import LogConfig
from runnel.replica.follower import FollowerReplica
from runnel.replica.leader import LeaderReplica
from tests.broker import group_calls, txn_calls
from tests.broker.group_calls import NONE, codes, commit_request, fetch, join, join_request
from tests.broker.world import BrokerWorld, Client

BOTH = frozenset({1, 2})
NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR.code


def lead(partition: ReplicatedLog, isr: frozenset[int] = frozenset({1})) -> None:
    """Lead in the next epoch, with a replica on node 2, which has fetched nothing yet."""
    partition.become_leader(LeaderReplica(1, partition.epoch + 1, BOTH, isr))


def follow(partition: ReplicatedLog) -> None:
    partition.become_follower(FollowerReplica(1, partition.epoch + 1, leader=2))


def replicated(partition: ReplicatedLog) -> None:
    """Node 2 has fetched everything."""
    partition.follower_fetched(2, partition.log.end_offset)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)


async def settle() -> None:
    """Give what is ready the time to happen."""
    for _ in range(20):
        await asyncio.sleep(0.001)


def partition_of(world: BrokerWorld, shards: Shards[Any], name: str) -> ReplicatedLog:
    return world.broker.partitions[TopicPartition(shards.topic, shards.partition_of(name))]


async def loaded(shards: Shards[Any], name: str) -> Any:
    index = shards.partition_of(name)
    await until(lambda: index in shards._drivers and shards._drivers[index].is_loaded)
    return shards.driver_of(name)


async def fetch_error(client: Client) -> int:
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)])
    error: int = (await client.ask(asked, 9)).groups[0].error_code
    return error


def test_a_follower_is_not_the_coordinator_and_a_new_leader_loads(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        groups = world.broker.groups
        assert codes(await client.ask(commit_request({0: 7}), 8)) == [NONE]
        partition = partition_of(world, groups, "g")
        before = groups.driver_of("g")
        follow(partition)
        assert not groups._drivers
        assert codes(await client.ask(commit_request({0: 8}), 8)) == [NOT_COORDINATOR]
        assert await fetch_error(client) == NOT_COORDINATOR
        assert (await client.ask(join_request(), 5)).error_code == NOT_COORDINATOR
        assert (await client.ask(ListGroupsRequest(), 4)).groups == []
        lead(partition)
        assert await fetch_error(client) in (NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.code)
        after = await loaded(groups, "g")
        assert after is not before and after.epoch == partition.epoch
        assert await fetch(client) == {0: 7}
        (listed,) = (await client.ask(ListGroupsRequest(), 4)).groups
        assert listed.group_id == "g"

    group_calls.play(tmp_path, scenario)


def test_an_unchanged_epoch_keeps_the_shard_and_a_new_one_reloads_it(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        groups = world.broker.groups
        await client.ask(commit_request({0: 7}), 8)
        partition = partition_of(world, groups, "g")
        driver = groups.driver_of("g")
        groups.role_changed(partition.name)
        assert groups.driver_of("g") is driver
        member = await join(client)
        other = await world.connect()
        other.send(join_request(), 9)
        second = await other.receive()
        other.send(join_request(second.member_id), 9)
        await until(lambda: driver._parked)
        lead(partition)
        assert (await other.receive()).error_code == NOT_COORDINATOR
        assert not driver.is_loaded and not driver._running
        assert (await loaded(groups, "g")) is not driver
        assert await fetch(client) == {0: 7}
        # The rebalance was not complete, so the group has no members on disk.
        assert member.member_id not in groups.driver_of("g").shard.groups["g"].members

    group_calls.play(tmp_path, scenario)


@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_shard_that_is_replaced_during_the_proof_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_replaced: bool
) -> None:
    """In the same epoch: it had replayed records that its log has lost, and replaced by others since."""

    async def scenario(world: BrokerWorld, client: Client) -> None:
        begun, proven = asyncio.Event(), asyncio.Event()

        async def prove(partition: ReplicatedLog, timeout_ms: int) -> None:
            begun.set()
            await proven.wait()

        monkeypatch.setattr(leadership_proof, "prove_leadership", prove)
        groups = world.broker.groups
        await client.ask(commit_request({0: 7}), 8)
        partition = partition_of(world, groups, "g")
        lead(partition)
        driver = await loaded(groups, "g")
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)], require_stable=True)
        client.send(asked, 9)
        await begun.wait()
        if is_replaced:
            groups._unload(partition.name.partition, driver)
            groups.role_changed(partition.name)
            assert await loaded(groups, "g") is not driver
        proven.set()
        (group,) = (await client.receive()).groups
        assert group.error_code == (NOT_COORDINATOR if is_replaced else NONE)

    group_calls.play(tmp_path, scenario)


def test_pending_commits_fail_and_a_later_high_watermark_confirms_nothing(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        groups = world.broker.groups
        await client.ask(commit_request({0: 1}), 8)
        partition = partition_of(world, groups, "g")
        lead(partition, BOTH)
        driver = await loaded(groups, "g")
        replicated(partition)
        client.send(commit_request({0: 2}), 8)
        await until(lambda: driver._held)
        follow(partition)
        # The new leader has the record and reports it as committed, or other records at its offset.
        assert isinstance(partition.replica, FollowerReplica)
        partition.replica.committed(partition.log.end_offset, partition.log.end_offset)
        partition.advance()
        assert codes(await client.receive()) == [NOT_COORDINATOR]
        # Unloading twice is harmless.
        driver.close()
        driver.close()
        lead(partition)
        await loaded(groups, "g")
        assert await fetch(client) == {0: 2}

    group_calls.play(tmp_path, scenario)


def test_a_new_epoch_of_the_same_leader_fails_what_was_pending(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        groups = world.broker.groups
        await client.ask(commit_request({0: 1}), 8)
        partition = partition_of(world, groups, "g")
        lead(partition, BOTH)
        driver = await loaded(groups, "g")
        client.send(commit_request({0: 2}), 8)
        await until(lambda: driver._held)
        lead(partition, BOTH)
        assert codes(await client.receive()) == [NOT_COORDINATOR]
        replicated(partition)
        await loaded(groups, "g")
        assert await fetch(client) == {0: 2}

    group_calls.play(tmp_path, scenario)


def test_nothing_uncommitted_is_answered_after_a_hand_over(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        groups = world.broker.groups
        await client.ask(commit_request({0: 1}), 8)
        partition = partition_of(world, groups, "g")
        lead(partition, BOTH)
        await loaded(groups, "g")
        replicated(partition)
        await until(lambda: partition.high_watermark == partition.log.end_offset)
        client.send(commit_request({0: 2}), 8)
        end_offset = partition.log.end_offset
        await until(lambda: partition.log.end_offset > end_offset)
        follow(partition)
        await client.receive()
        lead(partition, BOTH)
        await loaded(groups, "g")
        # The log has a commit that the other replica may not have: reads and rejections depend on it.
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)])
        client.send(asked, 9)
        other = await world.connect()
        other.send(commit_request({0: 3}, generation=5, member_id="stranger"), 8)
        await settle()
        driver = groups.driver_of("g")
        assert sum(not held.is_answered for held in driver._held) == 2
        replicated(partition)
        (answered,) = (await client.receive()).groups[0].topics
        assert answered.partitions[0].committed_offset == 2
        assert codes(await other.receive()) == [ErrorCode.UNKNOWN_MEMBER_ID.code]

    group_calls.play(tmp_path, scenario)


def test_appends_obey_min_insync_replicas(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        groups = world.broker.groups
        await client.ask(commit_request({0: 1}), 8)
        partition = partition_of(world, groups, "g")
        lead(partition)
        partition.configure(LogConfig(min_insync_replicas=2))
        await loaded(groups, "g")
        refused = codes(await client.ask(commit_request({0: 2}), 8))
        assert refused == [ErrorCode.COORDINATOR_NOT_AVAILABLE.code]
        partition.changed(BOTH, BOTH, 1)
        replicated(partition)
        client.send(commit_request({0: 3}), 8)
        end_offset = partition.log.end_offset
        await until(lambda: partition.log.end_offset > end_offset)
        replicated(partition)
        assert codes(await client.receive()) == [NONE]
        assert await fetch(client) == {0: 3}

    group_calls.play(tmp_path, scenario)


def test_commits_time_out_while_the_in_sync_replica_does_not_fetch(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        groups = world.broker.groups
        await client.ask(commit_request({0: 1}), 8)
        partition = partition_of(world, groups, "g")
        lead(partition, BOTH)
        await loaded(groups, "g")
        answer = codes(await client.ask(commit_request({0: 2}), 8))
        assert answer == [ErrorCode.COORDINATOR_NOT_AVAILABLE.code]

    group_calls.play(tmp_path, scenario, offsets_commit_timeout_ms="50")


def test_unloading_while_loading(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        groups = world.broker.groups
        for offset in range(20):
            await client.ask(commit_request({0: offset}), 8)
        partition = partition_of(world, groups, "g")
        for step in range(6):
            # The shard is unloaded before, while and after its log is read.
            lead(partition)
            for _ in range(step):
                await asyncio.sleep(0)
            follow(partition)
            assert not groups._drivers
        lead(partition)
        await loaded(groups, "g")
        assert await fetch(client) == {0: 19}
        assert not groups._loading._queue

    group_calls.play(tmp_path, scenario)


@pytest.mark.parametrize("version", [txn_calls.CLASSIC, txn_calls.NEW])
def test_a_prepared_transaction_gets_its_markers_once_it_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        transactions = world.broker.transactions
        who = await txn_calls.begin(client)
        assert await txn_calls.write(client, "x", who, b"a") == NONE
        partition = partition_of(world, transactions, "x")
        data = world.broker.partition("t", 0)
        with monkeypatch.context() as crash:
            crash.setattr(MarkerSender, "send", lambda *_: None)
            assert (await txn_calls.end(client, "x", who, version=version)).error_code == NONE
            follow(partition)
        assert (await txn_calls.describe(client, "x")).error_code == NOT_COORDINATOR
        lead(partition, BOTH)
        # As after a fail-over: the new leader does not know yet what is committed.
        partition.replica.high_watermark = 0
        driver = await loaded(transactions, "x")
        await settle()
        assert driver.shard.store.prepared and not driver.shard.store.pending_markers
        assert data.last_stable_offset == 0
        replicated(partition)
        await until(lambda: data.last_stable_offset == 2)
        replicated(partition)
        assert (await txn_calls.describe(client, "x")).transaction_state == "CompleteCommit"
        assert await txn_calls.committed(client) == [b"a"]
        (producer,) = data.log.producers()
        assert producer.coordinator_epoch == partition.epoch

    txn_calls.play(tmp_path, scenario)


def test_an_uncommitted_prepare_record_causes_no_marker(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        transactions = world.broker.transactions
        who = await txn_calls.begin(client)
        assert await txn_calls.write(client, "x", who, b"a") == NONE
        partition = partition_of(world, transactions, "x")
        data = world.broker.partition("t", 0)
        lead(partition, BOTH)
        await loaded(transactions, "x")
        replicated(partition)
        client.send(EndTxnRequest("x", *who, True), txn_calls.NEW)
        end_offset = partition.log.end_offset
        await until(lambda: partition.log.end_offset > end_offset)
        await settle()
        assert data.last_stable_offset == 0
        # Another leader did not have it: the transaction is still open, and the producer tries again.
        follow(partition)
        assert (await client.receive()).error_code == NOT_COORDINATOR
        partition.truncate_to(end_offset)
        lead(partition)
        await loaded(transactions, "x")
        assert (await txn_calls.describe(client, "x")).transaction_state == "Ongoing"
        assert data.last_stable_offset == 0
        assert (await txn_calls.end(client, "x", who, is_commit=False)).error_code == NONE
        await until(lambda: data.last_stable_offset == 2)
        assert (await txn_calls.describe(client, "x")).transaction_state == "CompleteAbort"

    txn_calls.play(tmp_path, scenario)


def test_shards_follow_the_log_without_being_told(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        world.broker.role_watchers.clear()
        groups = world.broker.groups
        await client.ask(commit_request({0: 1}), 8)
        partition = partition_of(world, groups, "g")
        follow(partition)
        assert codes(await client.ask(commit_request({0: 2}), 8)) == [NOT_COORDINATOR]
        lead(partition)
        assert await fetch_error(client) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.code
        await loaded(groups, "g")
        assert await fetch(client) == {0: 1}
        world.broker.role_watchers.extend([groups.role_changed, world.broker.transactions.role_changed])

    group_calls.play(tmp_path, scenario)


def test_the_transaction_shard_with_no_leader_here_is_not_listed(tmp_path: Path) -> None:
    async def scenario(world: BrokerWorld, client: Client) -> None:
        await txn_calls.begin(client)
        partition = partition_of(world, world.broker.transactions, "x")
        assert partition.name.topic == TRANSACTION_STATE
        follow(partition)
        assert world.broker.transactions.all_loaded() == []
        assert (await txn_calls.init(client)).error_code == NOT_COORDINATOR

    txn_calls.play(tmp_path, scenario)
