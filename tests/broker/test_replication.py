"""Brokers that replicate partitions: what followers copy, what is committed, and changes of the leader."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from runnel.broker.runtime import replica_fetcher
from runnel.broker.runtime.replication import FETCHERS_PER_LEADER_MAX
from runnel.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from runnel.messages.describe_producers import DescribeProducersRequest, TopicRequest
from runnel.messages.fetch import EpochEndOffset, PartitionData
from runnel.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from runnel.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition
from runnel.replica.leader import NEVER_MS, FetchTime, Follower
from runnel.schemas.metadata import ClearElrRecord, PartitionChangeRecord
from tests.broker.replicas import Replicas, until
from tests.broker.requests import NOW_MS, batch, fetch_from, only, produce_to, values
from tests.broker.world import Client

Scenario = Callable[[Replicas], Awaitable[None]]


def play(tmp_path: Path, scenario: Scenario, count: int = 3, **settings: str) -> None:
    async def run() -> None:
        async with Replicas(tmp_path, count, **settings) as replicas:
            await scenario(replicas)

    asyncio.run(run())


async def produced(client: Client, *records: bytes, acks: int = -1, topic: str = "t") -> Any:
    return only(await client.ask(produce_to(topic, (0, batch(*records)), acks=acks), 9))


def log_bytes(replicas: Replicas, node: int, name: str = "t") -> bytes:
    """All batches of a log, as stored."""
    log = replicas.partition(node, name).log
    return (
        b"".join(
            bytes(part)  # type: ignore[arg-type]
            for part in log.read(
                log.log_start_offset, 2**30, log.written_offset, at_least_one=True, may_block=True
            ).parts
        )
        if log.written_offset > log.log_start_offset
        else b""
    )


async def list_offset(client: Client, timestamp: int, version: int = 9, replica_id: int = -1) -> Any:
    request = ListOffsetsRequest(
        replica_id, topics=[ListOffsetsTopic("t", [ListOffsetsPartition(0, timestamp=timestamp)])]
    )
    return (await client.ask(request, version)).topics[0].partitions[0]


@pytest.mark.parametrize("flush_policy", ["never", "commit"])
def test_what_is_acknowledged_is_on_all_replicas(tmp_path: Path, flush_policy: str) -> None:
    async def scenario(replicas: Replicas) -> None:
        await replicas.create("t", flush_policy=flush_policy)
        client = await replicas.connect(1)
        for number in range(20):
            result = await produced(client, b"a%d" % number, b"b")
            assert (result.error_code, result.base_offset) == (0, 2 * number)
            for node in (2, 3):
                partition = replicas.partition(node)
                assert partition.log.written_offset == 2 * number + 2
                if flush_policy == "commit":
                    assert partition.log.durable_offset == 2 * number + 2
        assert log_bytes(replicas, 1) == log_bytes(replicas, 2) == log_bytes(replicas, 3)
        # Followers learn the high watermark with their next fetch.
        await until(lambda: {replicas.partition(node).high_watermark for node in (1, 2, 3)} == {40})
        found = only(await client.ask(fetch_from("t", (0, 0)), 12))
        assert len(values(found.records)) == 40

    play(tmp_path, scenario)


def test_a_new_leader_continues_and_others_follow_it(tmp_path: Path) -> None:
    async def scenario(replicas: Replicas) -> None:
        await replicas.create("t")
        first = await replicas.connect(1)
        for number in range(5):
            assert (await produced(first, b"%d" % number)).error_code == 0
        await replicas.elect("t", 2)
        refused = await produced(first, b"late")
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER.code
        second = await replicas.connect(2)
        for number in range(5, 10):
            result = await produced(second, b"%d" % number)
            assert (result.error_code, result.base_offset) == (0, number)
        assert log_bytes(replicas, 1) == log_bytes(replicas, 2) == log_bytes(replicas, 3)
        assert replicas.partition(1).log.epoch_of(5) == 1

    play(tmp_path, scenario)


def test_a_deposed_leader_truncates_what_was_never_committed(tmp_path: Path) -> None:
    async def scenario(replicas: Replicas) -> None:
        await replicas.create("t")
        client = await replicas.connect(1)
        assert (await produced(client, b"a")).error_code == 0
        await until(lambda: replicas.partition(1).high_watermark == 1)
        # The old leader writes what no follower fetches: it does not know yet that it is deposed.
        old = replicas.partition(1)
        for node in (2, 3):
            replicas.worlds[node].broker.replication.forget(old.name)
        assert (await produced(client, b"lost", b"too", acks=1)).error_code == 0
        await replicas.elect("t", 2)
        other = await replicas.connect(2)
        result = await produced(other, b"kept")
        assert (result.error_code, result.base_offset) == (0, 1)
        await until(lambda: log_bytes(replicas, 1) == log_bytes(replicas, 2) == log_bytes(replicas, 3))
        assert old.log.epochs.entries == ((0, 0), (1, 1))  # type: ignore[attr-defined]

    play(tmp_path, scenario)


def test_a_divergence_is_ignored_once_another_leader_is_elected(tmp_path: Path) -> None:
    async def scenario(replicas: Replicas) -> None:
        await replicas.create("t")
        client = await replicas.connect(1)
        await produced(client, b"a", b"b")
        await produced(client, b"c", b"d")
        follower, name = replicas.partition(2), TopicPartition("t", 0)
        fetcher = replicas.worlds[2].broker.replication._fetcher_of[name]
        followed = fetcher._by_name[name]
        await until(lambda: followed.is_current and follower.log.written_offset == 4)
        answer = PartitionData(0, 0, 0, diverging_epoch=EpochEndOffset(0, 2))
        truncate = fetcher._take(followed, answer, fetcher._channel)  # type: ignore[arg-type]
        assert truncate is not None
        # Other tasks run first: the next leader has all records, and commits them.
        await replicas.elect("t", 3)
        leader = replicas.partition(3)
        await until(lambda: leader.leader.followers[2].end_offset == 4 and leader.high_watermark == 4)
        truncations = follower.log.truncations  # type: ignore[attr-defined]
        await truncate()
        assert follower.log.truncations == truncations  # type: ignore[attr-defined]
        assert follower.log.written_offset == 4

    play(tmp_path, scenario)


def test_waiting_producers_of_a_deposed_leader_are_told(tmp_path: Path) -> None:
    async def scenario(replicas: Replicas) -> None:
        topic_id = await replicas.create("t")
        client = await replicas.connect(1)
        await produced(client, b"a")
        for node in (2, 3):
            replicas.worlds[node].broker.replication.forget(replicas.partition(node).name)
        client.send(produce_to(topic_id, (0, batch(b"b"))), 13)
        await until(lambda: replicas.partition(1).log.written_offset == 2)
        await replicas.elect("t", 3)
        response = await client.receive()
        refused = only(response)
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER.code
        assert (refused.current_leader.leader_id, refused.current_leader.leader_epoch) == (3, 1)
        (endpoint,) = response.node_endpoints
        assert (endpoint.node_id, endpoint.port) == (3, replicas.worlds[3].broker.port)
        # A repetition of the request, served by its template, has the same hints.
        client.send(produce_to(topic_id, (0, batch(b"c"))), 13)
        again = await client.receive()
        assert (only(again).current_leader.leader_id, again.node_endpoints[0].node_id) == (3, 3)
        fetched = await client.ask(fetch_from(topic_id, (0, 0), current_epoch=0), 16)
        assert only(fetched).error_code == ErrorCode.FENCED_LEADER_EPOCH.code
        assert only(fetched).current_leader.leader_id == fetched.node_endpoints[0].node_id == 3

    play(tmp_path, scenario)


def test_a_follower_that_stops_leaves_the_isr_and_returns(tmp_path: Path) -> None:
    async def scenario(replicas: Replicas) -> None:
        await replicas.create("t", min_insync_replicas="2")
        client = await replicas.connect(1)
        assert (await produced(client, b"a")).error_code == 0
        await replicas.stop(3)
        # Acknowledged once the controller has removed the silent replica.
        assert (await produced(client, b"b")).error_code == 0
        assert replicas.state().isr == (1, 2)
        await replicas.stop(2)
        request = produce_to("t", (0, batch(b"c")))
        request.timeout_ms = 1500
        late = only(await client.ask(request, 9))
        assert late.error_code == ErrorCode.REQUEST_TIMED_OUT.code
        await until(lambda: replicas.state().isr == (1,))
        assert replicas.partition(1).high_watermark == 2, "below min.insync.replicas nothing is committed"
        refused = await produced(client, b"d")
        assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS.code
        assert (await produced(client, b"d", acks=1)).error_code == 0
        await replicas.start(2)
        await until(lambda: replicas.partition(1).high_watermark == 4)
        assert replicas.state().isr == (1, 2)
        assert log_bytes(replicas, 1) == log_bytes(replicas, 2)
        assert (await produced(client, b"e")).error_code == 0

    play(tmp_path, scenario, broker_session_timeout_ms="500")


def test_a_follower_that_registers_again_returns_to_the_isr_without_new_records(tmp_path: Path) -> None:
    async def scenario(replicas: Replicas) -> None:
        await replicas.create("t")
        assert (await produced(await replicas.connect(1), b"a")).error_code == 0
        await replicas.fence(2)
        await replicas.set_isr("t", (1, 3))
        leader = replicas.partition(1).leader
        left_ms = leader.now_ms
        await until(lambda: leader.followers[2].fetch_time.ms > left_ms)
        # The same process continues with a new broker epoch. Its session does not mention the partition.
        await replicas.register(2)
        await until(lambda: replicas.state().isr == (1, 2, 3))

    play(tmp_path, scenario)


def test_a_follower_that_is_not_in_sync_is_mentioned_again_while_others_are_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_fetcher, "REMINDER_MS", 100)

    async def scenario(replicas: Replicas) -> None:
        await replicas.create("t", 2, replicas=(1, 2))
        follower = replicas.worlds[2].broker.replication
        assert len(set(follower._fetcher_of.values())) == 1
        client = await replicas.connect(1)
        leader = replicas.partition(1, index=1).leader
        await until(lambda: leader.followers[2].end_offset == 0)
        # As if a request of an earlier connection had been served last.
        leader.followers[2] = Follower(FetchTime(), NEVER_MS)
        await replicas.set_isr("t", (1,), index=1)
        async with asyncio.timeout(20):
            while replicas.state("t", 1).isr != (1, 2):
                assert (await produced(client, b"a")).error_code == 0

    play(tmp_path, scenario, count=2)


@pytest.mark.parametrize("topic", ["t", ""])
def test_a_follower_joins_the_isr_after_the_elr_was_cleared(tmp_path: Path, topic: str) -> None:
    async def scenario(replicas: Replicas) -> None:
        await replicas.fence(2)
        topic_id = await replicas.create("t", replicas=(1, 2), isr=(1,))
        await replicas.change(PartitionChangeRecord(0, topic_id, eligible_leader_replicas=[2]))
        # As after a change of min.insync.replicas.
        await replicas.change(ClearElrRecord(topic))
        assert not replicas.state().eligible
        assert replicas.partition(1).leader.partition_epoch == replicas.state().partition_epoch
        await replicas.fence(2, is_fenced=False)
        await until(lambda: set(replicas.state().isr) == {1, 2})

    play(tmp_path, scenario, count=2)


def test_a_replica_that_was_away_catches_up_from_wherever_it_is(tmp_path: Path) -> None:
    async def scenario(replicas: Replicas) -> None:
        await replicas.create("t", segment_bytes="500")
        client = await replicas.connect(1)
        await produced(client, b"a")
        await replicas.stop(3)
        await replicas.set_isr("t", (1, 2))
        for _ in range(5):
            assert (await produced(client, bytes(300))).error_code == 0
        await replicas.start(3)
        await until(lambda: log_bytes(replicas, 3) == log_bytes(replicas, 1))
        await until(lambda: replicas.state().isr == (1, 2, 3))
        # While it is away, the leader deletes what it would need next.
        await replicas.stop(3)
        await replicas.set_isr("t", (1, 2))
        for _ in range(5):
            assert (await produced(client, bytes(300))).error_code == 0
        await replicas.fence(3)
        deleted = await client.ask(delete_before(8), 2)
        assert deleted.topics[0].partitions[0].error_code == 0
        await replicas.start(3)
        await until(lambda: replicas.state().isr == (1, 2, 3))
        log = replicas.partition(3).log
        assert (log.log_start_offset, log.written_offset) == (8, 11)
        assert (await produced(client, b"z")).error_code == 0
        assert replicas.partition(3).log.written_offset == 12

    play(tmp_path, scenario)


def delete_before(offset: int, timeout_ms: int = 5000) -> DeleteRecordsRequest:
    return DeleteRecordsRequest(
        [DeleteRecordsTopic("t", [DeleteRecordsPartition(0, offset)])], timeout_ms=timeout_ms
    )


def test_records_are_deleted_on_all_live_replicas(tmp_path: Path) -> None:
    async def scenario(replicas: Replicas) -> None:
        await replicas.create("t")
        client = await replicas.connect(1)
        for number in range(6):
            await produced(client, b"%d" % number)
        result = (await client.ask(delete_before(4), 2)).topics[0].partitions[0]
        assert (result.error_code, result.low_watermark) == (0, 4)
        assert [replicas.partition(node).log.log_start_offset for node in (1, 2, 3)] == [4, 4, 4]
        other = await replicas.connect(2)
        refused = (await other.ask(delete_before(5), 2)).topics[0].partitions[0]
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER.code
        # A follower that is alive, but does not fetch, is waited for.
        name = replicas.partition(3).name
        replicas.worlds[3].broker.replication.forget(name)
        late = (await client.ask(delete_before(5, timeout_ms=200), 2)).topics[0].partitions[0]
        assert late.error_code == ErrorCode.REQUEST_TIMED_OUT.code
        await replicas.fence(3)
        result = (await client.ask(delete_before(5), 2)).topics[0].partitions[0]
        assert (result.error_code, result.low_watermark) == (0, 5)

    play(tmp_path, scenario)


def test_only_the_leader_answers_for_the_log(tmp_path: Path) -> None:
    async def scenario(replicas: Replicas) -> None:
        await replicas.create("t")
        client = await replicas.connect(1)
        await produced(client, b"a")
        follower = await replicas.connect(2)
        not_leader = ErrorCode.NOT_LEADER_OR_FOLLOWER.code
        assert (await list_offset(follower, -1)).error_code == not_leader
        asked = OffsetForLeaderTopic("t", [OffsetForLeaderPartition(0, leader_epoch=0)])
        answer = await follower.ask(OffsetForLeaderEpochRequest(topics=[asked]), 4)
        assert answer.topics[0].partitions[0].error_code == not_leader
        assert (await produced(follower, b"b")).error_code == not_leader
        # Consumers of old versions do not read from followers.
        assert only(await follower.ask(fetch_from("t", (0, 0)), 10)).error_code == not_leader
        await until(lambda: replicas.partition(2).high_watermark == 1)
        assert values(only(await follower.ask(fetch_from("t", (0, 0)), 11)).records) == [b"a"]
        latest = await list_offset(client, -1)
        assert (latest.error_code, latest.offset) == (0, 1)

    play(tmp_path, scenario)


def test_all_replicas_describe_their_producers(tmp_path: Path) -> None:
    async def scenario(replicas: Replicas) -> None:
        await replicas.create("t")
        client = await replicas.connect(1)
        records = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0)
        assert only(await client.ask(produce_to("t", (0, records), acks=-1), 9)).error_code == 0
        for node in (1, 2, 3):
            asked = DescribeProducersRequest([TopicRequest("t", [0])])
            (found,) = (await (await replicas.connect(node)).ask(asked, 0)).topics[0].partitions
            assert [producer.producer_id for producer in found.active_producers] == [7]

    play(tmp_path, scenario)


def test_a_new_leader_hides_the_end_until_it_is_known_what_is_committed(tmp_path: Path) -> None:
    async def scenario(replicas: Replicas) -> None:
        await replicas.create("t")
        client = await replicas.connect(1)
        await produced(client, b"a")
        await until(lambda: replicas.partition(2).high_watermark == 1)
        # Node 2 has a record of which it does not know whether it was committed.
        await replicas.stop(3)
        assert (await produced(client, b"b", acks=1)).error_code == 0
        await until(lambda: replicas.partition(2).log.written_offset == 2)
        await replicas.stop(1)
        await replicas.elect("t", 2)
        other = await replicas.connect(2)
        assert (await list_offset(other, -1)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE.code
        assert (await list_offset(other, -1, 4)).error_code == ErrorCode.LEADER_NOT_AVAILABLE.code
        assert (await list_offset(other, -2)).error_code == 0
        assert (await list_offset(other, -1, replica_id=3)).offset == 2, "followers see all"
        for node in (1, 3):
            await replicas.start(node)
        await until(lambda: replicas.partition(2).high_watermark == 2)
        assert (await list_offset(other, -1)).offset == 2

    play(tmp_path, scenario, broker_session_timeout_ms="60000")


def test_a_follower_does_not_decide_that_an_offset_behind_its_log_is_out_of_range(tmp_path: Path) -> None:
    async def scenario(replicas: Replicas) -> None:
        await replicas.create("t")
        assert (await produced(await replicas.connect(1), b"a", b"b")).error_code == 0
        await until(lambda: replicas.partition(2).high_watermark == 2)
        for node, error in ((1, ErrorCode.OFFSET_OUT_OF_RANGE), (2, ErrorCode.OFFSET_NOT_AVAILABLE)):
            client = await replicas.connect(node)
            assert only(await client.ask(fetch_from("t", (0, 2)), 12)).error_code == 0
            for _ in range(3):
                assert only(await client.ask(fetch_from("t", (0, 3)), 12)).error_code == error.code

    play(tmp_path, scenario)


def test_a_leader_that_may_be_deposed_does_not_decide_that_an_offset_is_out_of_range(tmp_path: Path) -> None:
    async def scenario(replicas: Replicas) -> None:
        await replicas.create("t")
        client, broker = await replicas.connect(1), replicas.worlds[1].broker
        assert (await produced(client, b"a")).error_code == 0
        answers = []
        for silent_ms in (0, broker.settings["broker.session.timeout.ms"] + 1):
            broker.contact_ms = broker.clock.monotonic_ms() - silent_ms
            found = only(await client.ask(fetch_from("t", (0, 5)), 12))
            answers.append(ErrorCode.from_code(found.error_code))
            # What is committed stays so.
            assert len(values(only(await client.ask(fetch_from("t", (0, 0)), 12)).records)) == 1
        assert answers == [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NOT_LEADER_OR_FOLLOWER]

    play(tmp_path, scenario)


def test_a_leader_that_may_be_deposed_does_not_decide_where_the_log_ends(tmp_path: Path) -> None:
    async def scenario(replicas: Replicas) -> None:
        await replicas.create("t")
        client, broker = await replicas.connect(1), replicas.worlds[1].broker
        assert (await produced(client, b"a")).error_code == 0
        asked = OffsetForLeaderTopic("t", [OffsetForLeaderPartition(0, leader_epoch=0)])

        async def answers() -> list[int]:
            epoch_end = (await client.ask(OffsetForLeaderEpochRequest(topics=[asked]), 4)).topics[0]
            listed = [await list_offset(client, timestamp) for timestamp in (-1, -3, NOW_MS)]
            return [epoch_end.partitions[0].error_code, *(found.error_code for found in listed)]

        broker.contact_ms = broker.clock.monotonic_ms()
        assert await answers() == [0] * 4
        broker.contact_ms -= broker.settings["broker.session.timeout.ms"] + 1
        assert await answers() == [ErrorCode.NOT_LEADER_OR_FOLLOWER.code] * 4
        assert (await list_offset(client, -2)).error_code == 0, "the beginning is the same"
        assert (await list_offset(client, -1, replica_id=-2)).offset == 1, "a tool asks for this replica"

    play(tmp_path, scenario)


def test_consumers_are_told_to_read_in_their_rack(tmp_path: Path) -> None:
    async def scenario(replicas: Replicas) -> None:
        await replicas.create("t")
        client = await replicas.connect(1)
        await produced(client, b"a")

        async def preferred(rack: str, offset: int = 0) -> tuple[int, list[bytes]]:
            request = fetch_from("t", (0, offset))
            request.rack_id = rack
            found = only(await client.ask(request, 12))
            return found.preferred_read_replica, values(found.records)

        assert await preferred("west") == (2, [])
        assert await preferred("west") == (2, []), "also if the request is repeated"
        assert await preferred("east") == (-1, [b"a"]), "the leader itself is there"
        assert await preferred("north") == (-1, [b"a"])
        await replicas.set_isr("t", (1, 3))
        assert await preferred("west") == (-1, [b"a"])

    async def run() -> None:
        selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
        replicas = Replicas(tmp_path, 3, replica_selector_class=selector)
        replicas.racks = {1: "east", 2: "west", 3: "south"}
        async with replicas:
            await scenario(replicas)

    asyncio.run(run())


def test_a_replica_that_is_moved_away_is_removed(tmp_path: Path) -> None:
    async def scenario(replicas: Replicas) -> None:
        topic_id = await replicas.create("t", replicas=(1, 2), isr=(1, 2))
        client = await replicas.connect(1)
        await produced(client, b"a")
        folder = tmp_path / "2" / "t-0"
        assert folder.exists()
        # Node 3 is added, catches up, and replaces node 2 as soon as it is in sync.
        await replicas.change(
            PartitionChangeRecord(0, topic_id, replicas=[1, 2, 3], adding_replicas=[3], removing_replicas=[2])
        )
        await until(lambda: replicas.state().replicas == (1, 3))
        assert replicas.state().isr == (1, 3)
        await until(lambda: log_bytes(replicas, 3) == log_bytes(replicas, 1))
        await until(lambda: not folder.exists())
        assert replicas.worlds[2].broker.partition_at.get(("t", 0)) is None
        assert (await produced(client, b"b")).error_code == 0
        refused = await produced(await replicas.connect(2), b"c")
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER.code
        # Also if the replica was removed from the partition while its node was down.
        await replicas.stop(3)
        await replicas.change(PartitionChangeRecord(0, topic_id, replicas=[1], isr=[1]))
        await replicas.start(3)
        await until(lambda: not (tmp_path / "3" / "t-0").exists())

    play(tmp_path, scenario)


def test_a_fetcher_that_is_being_closed_does_not_close_the_connection_of_its_successor(
    tmp_path: Path,
) -> None:
    async def scenario(replicas: Replicas) -> None:
        await replicas.create("t")
        replication = replicas.worlds[2].broker.replication
        partition = replicas.partition(2)
        old = replication._fetcher_of[partition.name]
        await until(lambda: old.is_waiting)
        replication.forget(partition.name)
        replication.opened(partition)
        new = replication._fetcher_of[partition.name]
        await until(lambda: new.is_waiting and not replication._closing)
        assert new is not old
        assert new._channel is not None
        assert new._channel is not old._channel
        assert (await produced(await replicas.connect(1), b"a")).error_code == 0
        assert new._failures == 0

    play(tmp_path, scenario)


@pytest.mark.parametrize("quiet_topics", [1, FETCHERS_PER_LEADER_MAX, FETCHERS_PER_LEADER_MAX + 2])
def test_partitions_added_while_fetches_wait_are_fetched_at_once(tmp_path: Path, quiet_topics: int) -> None:
    async def scenario(replicas: Replicas) -> None:
        replication = replicas.worlds[2].broker.replication
        for number in range(quiet_topics):
            await replicas.create(f"quiet-{number}")
            await until(lambda: all(fetcher.is_waiting for fetcher in replication._fetchers[1]))
        await replicas.create("t")
        assert len(replication._fetchers[1]) == min(quiet_topics + 1, FETCHERS_PER_LEADER_MAX)
        client = await replicas.connect(1)
        begun = asyncio.get_running_loop().time()
        assert (await produced(client, b"a")).error_code == 0
        assert asyncio.get_running_loop().time() - begun < 3

    play(tmp_path, scenario, replica_fetch_wait_max_ms="10000", broker_session_timeout_ms="60000")


def test_partitions_are_spread_over_the_configured_number_of_fetchers(tmp_path: Path) -> None:
    async def scenario(replicas: Replicas) -> None:
        await replicas.create("t", partitions=12, replicas=(1, 2))
        fetchers = replicas.worlds[2].broker.replication._fetchers[1]
        assert [len(fetcher) for fetcher in fetchers] == [2] * 6
        client = await replicas.connect(1)
        assert (await produced(client, b"a")).error_code == 0

    play(tmp_path, scenario, count=2, num_replica_fetchers="6")


def test_tools_ask_any_replica_how_far_it_is(tmp_path: Path) -> None:
    async def scenario(replicas: Replicas) -> None:
        await replicas.create("t")
        client = await replicas.connect(1)
        for number in range(3):
            assert (await produced(client, b"%d" % number)).error_code == 0
        follower = await replicas.connect(2)
        refused = await list_offset(follower, -1)
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER.code
        assert (await list_offset(follower, -1, replica_id=-2)).offset == 3
        await replicas.elect("t", -1)
        assert (await list_offset(client, -1, replica_id=-2)).offset == 3, "without a leader as well"

    play(tmp_path, scenario)
