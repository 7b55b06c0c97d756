"""Coordinators that move between replicated brokers: commits, members and transactions survive."""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from runnel.broker.runtime.shards import Shards
from runnel.controller.values import CONSUMER_OFFSETS, TRANSACTION_STATE
from runnel.disk import staged_write
from runnel.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from runnel.messages.add_partitions_to_txn import AddPartitionsToTxnTopic
from runnel.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from runnel.messages.end_txn import EndTxnRequest
from runnel.messages.find_coordinator import FindCoordinatorRequest
from runnel.messages.heartbeat import HeartbeatRequest
from runnel.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from runnel.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from runnel.model.errors import ErrorCode
from runnel.replica.leader import LeaderReplica
from tests.broker import txn_calls
from tests.broker.group_calls import codes, commit_request, fetch, join, sync_request
from tests.broker.replicas import Replicas, until
from tests.broker.txn_calls import CLASSIC, NEW, NONE
from tests.broker.world import Client

NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR.code
RETRIED = {
    NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.code,
    ErrorCode.COORDINATOR_NOT_AVAILABLE.code,
    ErrorCode.CONCURRENT_TRANSACTIONS.code,
    ErrorCode.NOT_ENOUGH_REPLICAS.code,
    ErrorCode.NOT_LEADER_OR_FOLLOWER.code,
}

Scenario = Callable[["Cluster"], Awaitable[None]]


class Cluster:
    """Three brokers with replicated coordinators, and a client of each."""

    def __init__(self, replicas: Replicas) -> None:
        self.replicas = replicas
        self.clients: dict[int, Client] = {}

    async def open(self) -> None:
        for name in (CONSUMER_OFFSETS, TRANSACTION_STATE):
            await self.replicas.create(name, min_insync_replicas="2", cleanup_policy="compact")
        await self.replicas.create("t", partitions=2, replicas=(2, 3, 1), min_insync_replicas="2")
        for node in self.replicas.worlds:
            self.clients[node] = await self.replicas.connect(node)

    def shards(self, node: int, topic: str) -> Shards[Any]:
        broker = self.replicas.worlds[node].broker
        return broker.groups if topic == CONSUMER_OFFSETS else broker.transactions

    async def move(self, topic: str, node: int) -> None:
        """Elect another leader; returns when clients are sent to it and its shard is loaded."""
        await self.replicas.elect(topic, node)
        kind = 0 if topic == CONSUMER_OFFSETS else 1
        for client in self.clients.values():
            found = await client.ask(FindCoordinatorRequest(key="x", key_type=kind), 1)
            assert (found.error_code, found.node_id) == (NONE, node)
        shards = self.shards(node, topic)
        await until(lambda: not self.log(topic, node).log.end_offset or self.is_loaded(shards))
        for other in self.clients:
            assert other == node or not self.shards(other, topic)._drivers

    def is_loaded(self, shards: Shards[Any]) -> bool:
        return 0 in shards._drivers and shards._drivers[0].is_loaded

    def log(self, topic: str, node: int) -> Any:
        return self.replicas.partition(node, topic)

    async def retried(self, ask: Callable[[], Awaitable[Any]], error_of: Callable[[Any], int]) -> Any:
        """Repeat a request as clients do, while its error is retriable."""
        async with asyncio.timeout(20):
            while error_of(reply := await ask()) in RETRIED:
                await asyncio.sleep(0.005)
        return reply


def error_code(reply: Any) -> int:
    code: int = reply.error_code
    return code


def first_code(reply: Any) -> int:
    return codes(reply)[0]


def play(folder: Path, scenario: Scenario, **settings: str) -> None:
    async def run() -> None:
        async with Replicas(folder, 3, group_initial_rebalance_delay_ms="0", **settings) as replicas:
            cluster = Cluster(replicas)
            await cluster.open()
            await scenario(cluster)

    asyncio.run(run())


def test_offsets_survive_each_hand_over(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        for number in range(7):
            node = 1 + number % 3
            await cluster.move(CONSUMER_OFFSETS, node)
            if number:
                assert await fetch(cluster.clients[node]) == {0: number - 1}
            assert codes(await cluster.clients[node].ask(commit_request({0: number}), 8)) == [NONE]
            for other in {1, 2, 3} - {node}:
                refused = codes(await cluster.clients[other].ask(commit_request({0: 99}), 8))
                assert refused == [NOT_COORDINATOR]

    play(tmp_path, scenario)


def stable_offsets() -> OffsetFetchRequest:
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)], require_stable=True)


def test_stable_offsets_do_not_wait_for_the_next_fetches_of_followers(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.move(CONSUMER_OFFSETS, 1)
        client = cluster.clients[1]
        assert codes(await client.ask(commit_request({0: 7}), 8)) == [NONE]
        async with asyncio.timeout(10):
            for _ in range(10):
                (group,) = (await client.ask(stable_offsets(), 9)).groups
                assert group.error_code == NONE
                assert [part.committed_offset for part in group.topics[0].partitions] == [7]

    # Longer than the test may take.
    play(tmp_path, scenario, replica_fetch_wait_max_ms="20000", replica_lag_time_max_ms="60000")


def test_a_coordinator_that_was_replaced_unnoticed_reports_no_stable_offsets(tmp_path: Path) -> None:
    """Its successor may have committed later ones, from which a transactional consumer must resume."""

    async def scenario(cluster: Cluster) -> None:
        replicas, client = cluster.replicas, cluster.clients[1]
        await cluster.move(CONSUMER_OFFSETS, 1)
        assert codes(await client.ask(commit_request({0: 7}), 8)) == [NONE]
        replaced = replicas.worlds.pop(1)
        await replicas.elect(CONSUMER_OFFSETS, 2, isr=(2, 3))
        replicas.worlds[1] = replaced
        successor = cluster.clients[2]
        commit = commit_request({0: 8})
        assert codes(await cluster.retried(lambda: successor.ask(commit, 8), first_code)) == [NONE]
        assert await fetch(client) == {0: 7}
        assert (await client.ask(stable_offsets(), 9)).groups[0].error_code == NOT_COORDINATOR
        (group,) = (await successor.ask(stable_offsets(), 9)).groups
        assert [part.committed_offset for part in group.topics[0].partitions] == [8]
        await replicas.tell(1)

    play(tmp_path, scenario)


def test_members_of_both_protocols_continue_at_the_new_coordinator(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        first = cluster.clients[1]
        member = await join(first)
        await first.ask(sync_request(member, {member.member_id: b"all"}), 5)
        beat = HeartbeatRequest("g", member.generation_id, member.member_id)
        topics = ["t"]
        asked = ConsumerGroupHeartbeatRequest(
            "modern", "m", 0, rebalance_timeout_ms=60_000, subscribed_topic_names=topics, topic_partitions=[]
        )
        assigned = await first.ask(asked, 1)
        assert assigned.error_code == NONE
        owned = assigned.assignment.topic_partitions
        for node in (2, 3):
            await cluster.move(CONSUMER_OFFSETS, node)
            client = cluster.clients[node]
            assert (await client.ask(beat, 4)).error_code == NONE
            commit = commit_request({0: node}, generation=member.generation_id, member_id=member.member_id)
            assert codes(await client.ask(commit, 8)) == [NONE]
            beating = ConsumerGroupHeartbeatRequest("modern", "m", assigned.member_epoch)
            reply = await client.ask(beating, 1)
            assert (reply.error_code, reply.member_epoch) == (NONE, assigned.member_epoch)
        assert sum(len(topic.partitions) for topic in owned) == 2

    play(tmp_path, scenario)


def test_a_commit_that_was_not_answered_is_repeated_at_the_new_coordinator(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.move(CONSUMER_OFFSETS, 1)
        assert codes(await cluster.clients[1].ask(commit_request({0: 1}), 8)) == [NONE]
        # The leader is cut off: it does not receive the election, and no replica fetches from it.
        isolated = cluster.replicas.worlds.pop(1)
        log = isolated.broker.groups.driver_of("g").partition
        await cluster.replicas.elect(CONSUMER_OFFSETS, 2, isr=(2, 3))
        cluster.clients[1].send(commit_request({0: 5}), 8)
        await until(lambda: log.log.end_offset > log.high_watermark)
        client = cluster.clients[2]
        await cluster.retried(lambda: client.ask(commit_request({0: 2}), 8), first_code)
        assert await fetch(client) == {0: 2}
        cluster.replicas.worlds[1] = isolated
        await cluster.replicas.tell(1)
        assert codes(await cluster.clients[1].receive()) == [NOT_COORDINATOR]
        # What it had written alone is truncated.
        await until(lambda: log.log.end_offset == cluster.log(CONSUMER_OFFSETS, 2).log.end_offset)
        assert await fetch(client) == {0: 2}

    play(tmp_path, scenario)


def test_the_coordinator_is_killed(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        assert codes(await cluster.clients[1].ask(commit_request({0: 1}), 8)) == [NONE]
        cluster.clients.pop(1)
        await cluster.replicas.stop(1)
        await cluster.replicas.elect(CONSUMER_OFFSETS, 3, isr=(2, 3))
        client = cluster.clients[3]
        await cluster.retried(lambda: client.ask(commit_request({1: 2}), 8), first_code)
        assert await fetch(client) == {0: 1, 1: 2}

    play(tmp_path, scenario)


def is_full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "no space left on device")


@pytest.mark.parametrize("is_written", [True, False])
def test_a_new_coordinator_waits_for_copies_that_are_being_written(tmp_path: Path, is_written: bool) -> None:
    async def scenario(cluster: Cluster) -> None:
        assert codes(await cluster.clients[1].ask(commit_request({0: 7}), 8)) == [NONE]
        elected, disk = cluster.log(CONSUMER_OFFSETS, 2), cluster.replicas.worlds[2].disk
        before = elected.log.written_offset
        held: list[Callable[[], None]] = []

        def write_slowly(
            write: Callable[[], None], done: Callable[[None, BaseException | None], None]
        ) -> None:
            def end() -> None:
                write()
                done(None, None)

            held.append(end)

        disk.background_bytes_min = 1
        disk.write_soon = write_slowly  # type: ignore[method-assign, assignment]
        cluster.clients[1].send(commit_request({0: 9}), 8)
        await until(lambda: held)
        assert elected.log.end_offset > elected.log.written_offset == before
        await cluster.replicas.elect(CONSUMER_OFFSETS, 2, isr=(2, 3))
        # Nothing may be loaded or committed, as the end of the log is not known.
        assert not elected.is_leader
        with pytest.MonkeyPatch.context() as patch:
            if not is_written:
                patch.setattr(staged_write, "write_all", is_full)
            held.pop()()
        del disk.write_soon
        await until(lambda: elected.is_leader and cluster.is_loaded(cluster.shards(2, CONSUMER_OFFSETS)))
        assert elected.log.end_offset == elected.log.written_offset
        assert elected.log.written_offset > before if is_written else elected.log.written_offset == before
        # Without another write.
        await until(lambda: elected.high_watermark == elected.log.written_offset)
        assert await fetch(cluster.clients[2]) == {0: 9 if is_written else 7}

    play(tmp_path, scenario)


class Producer:
    """A transactional producer that follows its coordinator and the leaders of its partitions."""

    def __init__(self, cluster: Cluster, version: int) -> None:
        self.cluster = cluster
        self.version = version
        self.coordinator = 1
        self.who = -1, -1
        self.sequences: dict[int, int] = {}

    async def begin(self) -> None:
        reply = await self.cluster.retried(lambda: txn_calls.init(self.client), error_code)
        assert reply.error_code == NONE
        self.who = reply.producer_id, reply.producer_epoch

    @property
    def client(self) -> Client:
        return self.cluster.clients[self.coordinator]

    async def write(self, partition: int, value: bytes) -> None:
        """Write to the leader of t-0 or t-1."""
        if self.version == CLASSIC:
            topic = AddPartitionsToTxnTopic("t", [partition])
            added = await self.cluster.retried(
                lambda: self.client.ask(txn_calls.add_request("x", self.who, 3, topic), 3),
                lambda reply: txn_calls.added(reply, 3)["t", partition],
            )
            assert set(txn_calls.added(added, 3).values()) == {NONE}
        sequence = self.sequences.get(partition, 0)

        async def produce() -> int:
            leader = self.cluster.replicas.state("t", partition).leader
            client, version = self.cluster.clients[leader], 12 if self.version == NEW else 11
            options = {"partition": partition, "sequence": sequence, "version": version}
            return await txn_calls.write(client, "x", self.who, value, **options)

        assert await self.cluster.retried(produce, int) == NONE
        self.sequences[partition] = sequence + 1

    async def commit_offset(self, offset: int) -> None:
        """Commit an offset of t-0 with the group coordinator, broker 1."""
        if self.version == CLASSIC:
            added = AddOffsetsToTxnRequest("x", *self.who, "g")
            await self.cluster.retried(lambda: self.client.ask(added, 3), error_code)
        topics = [TxnOffsetCommitRequestTopic("t", [TxnOffsetCommitRequestPartition(0, offset)])]
        request = TxnOffsetCommitRequest("x", "g", *self.who, topics=topics)
        client, version = self.cluster.clients[1], 5 if self.version == NEW else 4
        reply = await self.cluster.retried(lambda: client.ask(request, version), first_code)
        assert codes(reply) == [NONE]

    async def end(self, *, is_commit: bool = True) -> None:
        reply = await self.cluster.retried(
            lambda: txn_calls.end(self.client, "x", self.who, is_commit=is_commit, version=self.version),
            error_code,
        )
        assert reply.error_code == NONE
        if self.version == NEW:
            self.who = reply.producer_id, reply.producer_epoch
            self.sequences.clear()

    async def move(self, node: int) -> None:
        await self.cluster.move(TRANSACTION_STATE, node)
        self.coordinator = node

    async def completed(self, state: str = "CompleteCommit") -> None:
        async with asyncio.timeout(20):
            while (await txn_calls.describe(self.client, "x")).transaction_state != state:
                await asyncio.sleep(0.005)


async def committed(cluster: Cluster, partition: int) -> list[bytes]:
    """What consumers of committed records see, at the leader."""
    leader = cluster.replicas.state("t", partition).leader
    log = cluster.replicas.partition(leader, "t", partition)
    await until(lambda: log.last_stable_offset == log.log.end_offset)
    return await txn_calls.committed(cluster.clients[leader], partition)


@pytest.mark.parametrize("version", [CLASSIC, NEW])
def test_a_transaction_continues_at_each_new_coordinator(tmp_path: Path, version: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        producer = Producer(cluster, version)
        await producer.begin()
        for number in range(4):
            await producer.write(0, b"a%d" % number)
            await producer.move(1 + (number + 1) % 3)
            await producer.write(1, b"b%d" % number)
            await producer.commit_offset(number)
            await producer.move(1 + (number + 2) % 3)
            # The leader of a partition changes as well.
            await cluster.replicas.elect("t", 1 + number % 3, index=0)
            await producer.end()
            await producer.move(1 + number % 3)
            await producer.completed()
            assert await fetch(cluster.clients[1], 0) == {0: number}
        assert await committed(cluster, 0) == [b"a%d" % number for number in range(4)]
        assert await committed(cluster, 1) == [b"b%d" % number for number in range(4)]

    play(tmp_path, scenario)


@pytest.mark.parametrize("version", [CLASSIC, NEW])
def test_a_hand_over_between_decision_and_markers(tmp_path: Path, version: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        producer = Producer(cluster, version)
        await producer.begin()
        await producer.write(0, b"a")
        # The partition has no leader, so that its marker must wait.
        await cluster.replicas.elect("t", -1)
        await producer.end()
        assert (await txn_calls.describe(producer.client, "x")).transaction_state == "PrepareCommit"
        for node in (2, 3):
            await producer.move(node)
            assert (await txn_calls.describe(producer.client, "x")).transaction_state == "PrepareCommit"
        await cluster.replicas.elect("t", 3)
        await producer.completed()
        assert await committed(cluster, 0) == [b"a"]
        (state,) = cluster.replicas.partition(3, "t").log.producers()
        assert state.coordinator_epoch == cluster.log(TRANSACTION_STATE, 3).epoch

    play(tmp_path, scenario)


@pytest.mark.parametrize("version", [CLASSIC, NEW])
def test_an_isolated_coordinator_decides_nothing(tmp_path: Path, version: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        producer = Producer(cluster, version)
        await producer.begin()
        await producer.write(0, b"a")
        isolated = cluster.replicas.worlds.pop(1)
        shard = isolated.broker.transactions.driver_of("x").partition
        await cluster.replicas.elect(TRANSACTION_STATE, 2, isr=(2, 3))
        # The old coordinator appends the decision to commit, which no replica fetches.
        cluster.clients[1].send(EndTxnRequest("x", *producer.who, True), version)
        await until(lambda: shard.log.end_offset > shard.high_watermark)
        producer.coordinator = 2
        await producer.end(is_commit=False)
        await producer.completed("CompleteAbort")
        cluster.replicas.worlds[1] = isolated
        await cluster.replicas.tell(1)
        assert (await cluster.clients[1].receive()).error_code == NOT_COORDINATOR
        await until(lambda: shard.log.end_offset == cluster.log(TRANSACTION_STATE, 2).log.end_offset)
        log = cluster.replicas.partition(2, "t")
        assert log.log.end_offset == log.last_stable_offset == 2

    play(tmp_path, scenario)


def test_below_min_insync_replicas_clients_retry(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.move(CONSUMER_OFFSETS, 1)
        client = cluster.clients[1]
        assert codes(await client.ask(commit_request({0: 1}), 8)) == [NONE]
        for node in (2, 3):
            cluster.clients.pop(node)
            await cluster.replicas.stop(node)
        await cluster.replicas.set_isr(CONSUMER_OFFSETS, (1,))
        log = cluster.log(CONSUMER_OFFSETS, 1)
        assert isinstance(log.replica, LeaderReplica)
        refused = codes(await client.ask(commit_request({0: 2}), 8))
        assert refused == [ErrorCode.COORDINATOR_NOT_AVAILABLE.code]
        assert await fetch(client) == {0: 1}
        await cluster.replicas.start(2)
        await cluster.retried(lambda: client.ask(commit_request({0: 3}), 8), first_code)
        assert await fetch(client) == {0: 3}

    play(tmp_path, scenario)
