"""Fetches of followers: what the leader answers, in which order it checks, and what it counts as progress."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runnel.broker.apis.fetch_by_replica import ReplicaFetch
from runnel.broker.runtime import follower_sessions
from runnel.disk.decryption import Decryption
from runnel.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from runnel.model.errors import ErrorCode
from runnel.model.ids import NO_ID
from runnel.model.limits import SLICE_ELEMENTS
from runnel.replica.leader import UNKNOWN_OFFSET
from runnel.schemas.metadata import FeatureLevelRecord
from tests.broker.replicas import Replicas, until
from tests.broker.requests import batch, only, produce_to, values

Scenario = Callable[["Leader"], Awaitable[None]]


class Leader:
    """A leader, node 1, and the means to fetch from it as nodes 2 and 3 would."""

    def __init__(self, replicas: Replicas) -> None:
        self.replicas = replicas
        self.epochs: dict[int, int] = {}
        self.topic_id = NO_ID

    async def start(self, partitions: int = 1, isr: tuple[int, ...] = (1, 2, 3), **configs: str) -> None:
        for node in (2, 3):
            self.epochs[node] = await self.replicas.register(node)
        self.topic_id = await self.replicas.create("t", partitions, (1, 2, 3), isr, **configs)
        self.client = await self.replicas.connect(1)
        self.followers = {node: await self.replicas.connect(1) for node in (2, 3)}

    async def append(self, *records: bytes, index: int = 0) -> None:
        result = only(await self.client.ask(produce_to("t", (index, batch(*records)), acks=1), 9))
        assert result.error_code == 0

    def request(self, node: int = 2, *asked: FetchPartition, **options: Any) -> FetchRequest:
        state = ReplicaState(node, options.pop("broker_epoch", self.epochs[node]))
        options.setdefault("max_wait_ms", 0)
        topics = [FetchTopic(topic_id=self.topic_id, partitions=list(asked))] if asked else []
        return FetchRequest(replica_state=state, min_bytes=1, topics=topics, **options)

    async def fetch(
        self,
        offset: int,
        *,
        node: int = 2,
        index: int = 0,
        epoch: int = 0,
        last_epoch: int = 0,
        **options: Any,
    ) -> PartitionData:
        """One partition, without a session."""
        request = self.request(node, at(offset, index, epoch, last_epoch), **options)
        found: PartitionData = only(await self.followers[node].ask(request, 18))
        return found


def at(offset: int, index: int = 0, epoch: int = 0, last_epoch: int = 0) -> FetchPartition:
    return FetchPartition(
        index,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        log_start_offset=0,
        partition_max_bytes=1024 * 1024,
    )


def play(tmp_path: Path, scenario: Scenario, **settings: str) -> None:
    async def run() -> None:
        async with Replicas(tmp_path, 1, **settings) as replicas:
            await scenario(Leader(replicas))

    asyncio.run(run())


def test_a_follower_reads_to_the_end_of_the_log_and_commits_by_its_offset(tmp_path: Path) -> None:
    async def scenario(leader: Leader) -> None:
        await leader.start()
        await leader.append(b"a", b"b")
        found = await leader.fetch(0)
        assert (values(found.records), found.high_watermark) == ([b"a", b"b"], 0)
        partition = leader.replicas.partition(1)
        assert (await leader.fetch(2)).error_code == 0
        assert partition.high_watermark == 0, "node 3 has nothing yet"
        assert (await leader.fetch(1, node=3)).error_code == 0
        assert partition.high_watermark == 1
        await leader.fetch(2, node=3)
        assert partition.high_watermark == 2

    play(tmp_path, scenario)


@pytest.mark.parametrize(
    ("level", "version", "is_accepted"),
    [(7, 4, False), (7, 12, False), (7, 13, True), (9, 13, False), (9, 14, True), (10, 14, False)],
)
def test_without_broker_epochs_only_the_version_of_followers_counts(
    tmp_path: Path, level: int, version: int, is_accepted: bool
) -> None:
    async def scenario(leader: Leader) -> None:
        await leader.start(isr=(1, 2))
        await leader.append(b"a")
        await leader.replicas.change(FeatureLevelRecord("metadata.version", level))
        name, topic_id = ("", leader.topic_id) if version >= 13 else ("t", NO_ID)
        partition = leader.replicas.partition(1)
        for offset in (0, 1):
            request = FetchRequest(
                replica_id=2, max_bytes=10_000, topics=[FetchTopic(name, topic_id, [at(offset)])]
            )
            found = only(await leader.followers[2].ask(request, version))
            if is_accepted:
                assert (found.error_code, values(found.records)) == (0, [b"a"] if offset == 0 else [])
            else:
                assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER.code
        assert partition.high_watermark == (1 if is_accepted else 0)
        assert partition.leader.followers[2].end_offset == (1 if is_accepted else -1)

    play(tmp_path, scenario)


def test_without_broker_epochs_followers_use_the_listener_for_brokers(tmp_path: Path) -> None:
    async def scenario(leader: Leader) -> None:
        await leader.start(isr=(1, 2))
        await leader.append(b"a")
        await leader.replicas.change(FeatureLevelRecord("metadata.version", 7))
        leader.replicas.worlds[1].broker.listener = "REPLICATION"
        request = FetchRequest(replica_id=2, topics=[FetchTopic("", leader.topic_id, [at(1)])])
        found = only(await leader.followers[2].ask(request, 13))
        assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER.code
        assert leader.replicas.partition(1).high_watermark == 0

    play(tmp_path, scenario)


@pytest.mark.parametrize("session_epoch", [-1, 0, 1])
@pytest.mark.parametrize("wrong", [-1, 1, 2**62])
def test_a_fetch_without_the_registered_broker_epoch_has_no_effect(
    tmp_path: Path, session_epoch: int, wrong: int
) -> None:
    """A client that states a replica id must not commit records, nor disturb the session of the follower."""

    async def scenario(leader: Leader) -> None:
        await leader.start(isr=(1, 2))
        # Followers state their epoch from this level on.
        await leader.replicas.change(FeatureLevelRecord("metadata.version", 10))
        session = (await begin_session(leader, 1)).session_id
        await leader.append(b"a")
        partition, broker = leader.replicas.partition(1), leader.replicas.worlds[1].broker
        before = replace(partition.leader.followers[2])
        for client in (leader.client, leader.followers[2]):
            request = leader.request(
                2, at(1), broker_epoch=wrong, session_epoch=session_epoch, session_id=session
            )
            answer = await client.ask(request, 18)
            error = answer.error_code or only(answer).error_code
            session_error = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            refused = session_error if session_epoch > 0 else ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert error == refused.code
        assert partition.leader.followers[2] == before
        assert partition.leader.followers[2].fetch_time is before.fetch_time
        assert (len(partition.cursors), len(broker.follower_sessions)) == (1, 1)
        assert indexes(await incremental(leader, session, 1)) == [0], "the session continues"

    play(tmp_path, scenario)


def test_the_first_check_that_fails_is_answered_and_nothing_counts(tmp_path: Path) -> None:
    async def scenario(leader: Leader) -> None:
        await leader.start()
        await leader.append(b"a", b"b")
        await leader.replicas.elect("t", 1)
        replicas = leader.replicas
        stale, leader.epochs[3] = leader.epochs[3], await replicas.register(3)

        async def error(offset: int, **options: Any) -> str:
            return ErrorCode.from_code((await leader.fetch(offset, **options)).error_code).name

        topic_id, leader.topic_id = leader.topic_id, bytes(range(16))
        assert await error(2, epoch=0) == "UNKNOWN_TOPIC_ID"
        leader.topic_id = topic_id
        assert await error(2, epoch=0, broker_epoch=1) == "FENCED_LEADER_EPOCH"
        assert await error(2, epoch=2, broker_epoch=1) == "UNKNOWN_LEADER_EPOCH"
        leader.epochs[9], leader.followers[9] = 1, leader.followers[2]
        assert await error(2, node=9, epoch=1) == "UNKNOWN_LEADER_EPOCH"
        assert await error(9, node=3, epoch=1, broker_epoch=stale) == "NOT_LEADER_OR_FOLLOWER"
        assert await error(3, epoch=1, last_epoch=-1) == "OFFSET_OUT_OF_RANGE"
        assert await error(2, epoch=1, last_epoch=7) == "OFFSET_OUT_OF_RANGE"
        followers = replicas.partition(1).leader.followers
        assert {follower.end_offset for follower in followers.values()} == {-1}
        assert await error(2, epoch=1) == "NONE"
        assert followers[2].end_offset == 2
        await replicas.elect("t", 2)
        assert await error(2, epoch=2) == "NOT_LEADER_OR_FOLLOWER"

    play(tmp_path, scenario)


def test_a_diverging_fetch_is_no_progress(tmp_path: Path) -> None:
    """KAFKA-13141: it moved the high watermark over records that the follower did not have."""

    async def scenario(leader: Leader) -> None:
        await leader.start(isr=(1, 2))
        await leader.append(b"a")
        await leader.append(b"b")
        partition = leader.replicas.partition(1)
        await leader.fetch(0)
        await leader.replicas.elect("t", 1)
        await leader.replicas.elect("t", 1)
        await leader.append(b"c")
        # Node 2 led in epoch 1 without our knowing: what it has from there on is not ours.
        found = await leader.fetch(3, epoch=2, last_epoch=1)
        diverging = found.diverging_epoch
        assert diverging is not None and (diverging.epoch, diverging.end_offset) == (0, 2)
        assert (found.error_code, found.records or b"") == (0, b"")
        assert (partition.high_watermark, partition.leader.followers[2].end_offset) == (0, -1)
        found = await leader.fetch(2, epoch=2)
        assert values(found.records) == [b"c"]
        assert partition.high_watermark == 2

    play(tmp_path, scenario)


async def begin_session(leader: Leader, count: int, offset: int = 0, node: int = 2) -> FetchResponse:
    asked = [at(offset, index) for index in range(count)]
    request = leader.request(node, *asked, session_epoch=0, max_wait_ms=500)
    response: FetchResponse = await leader.followers[node].ask(request, 18)
    assert response.error_code == 0 and response.session_id > 0
    return response


async def incremental(
    leader: Leader, session: int, epoch: int, *asked: FetchPartition, **options: Any
) -> Any:
    request = leader.request(2, *asked, session_id=session, session_epoch=epoch, **options)
    return await leader.followers[2].ask(request, 18)


def indexes(response: FetchResponse) -> list[int]:
    return [data.partition_index for topic in response.responses for data in topic.partitions]


def test_a_round_costs_what_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(leader: Leader) -> None:
        await leader.start(1200)
        first = await begin_session(leader, 1200)
        assert sorted(indexes(first)) == list(range(1200)), "a full response has all partitions"
        session = first.session_id
        reads: list[int] = []
        read = ReplicaFetch._read_partition

        def counted(self: ReplicaFetch, cursor: Any, budget: int, *, is_first: bool) -> Any:
            reads.append(cursor.asked.partition)
            return read(self, cursor, budget, is_first=is_first)

        monkeypatch.setattr(ReplicaFetch, "_read_partition", counted)
        assert indexes(await incremental(leader, session, 1, max_wait_ms=20)) == []
        await leader.append(b"a", index=700)
        response = await incremental(leader, session, 2, max_wait_ms=500)
        assert (indexes(response), reads) == ([700], [700])
        # A new high watermark wakes no fetch: it is part of the next response.
        partition = leader.replicas.partition(1, index=700)
        await leader.fetch(1, node=3, index=700)
        assert indexes(await incremental(leader, session, 3, at(1, 700), max_wait_ms=20)) == [700]
        assert partition.high_watermark == 1
        response = await incremental(leader, session, 4, max_wait_ms=20)
        assert indexes(response) == []
        assert set(reads) == {700}

    play(tmp_path, scenario)


def test_a_mention_that_was_rejected_counts_once_it_is_valid(tmp_path: Path) -> None:
    """The follower knows the election first. It gets no error in the end, and mentions nothing again."""

    async def scenario(leader: Leader) -> None:
        await leader.start(2)
        session = (await begin_session(leader, 2)).session_id
        await leader.append(b"a")
        asked = at(0), at(0, 1, epoch=1)
        assert indexes(await incremental(leader, session, 1, *asked, max_bytes=1)) == [0], "the limit"
        await leader.replicas.elect("t", 1, isr=(1,), index=1)
        assert leader.replicas.partition(1, index=1).leader.followers[2].end_offset == UNKNOWN_OFFSET
        assert indexes(await incremental(leader, session, 2)) == [], "there is nothing new, and no error"
        assert leader.replicas.partition(1, index=1).leader.followers[2].end_offset == 0
        await until(lambda: leader.replicas.state("t", 1).isr == (1, 2))

    play(tmp_path, scenario)


def test_a_session_keeps_only_partitions_of_this_node(tmp_path: Path) -> None:
    async def scenario(leader: Leader) -> None:
        await leader.start(1)
        session = (await begin_session(leader, 1)).session_id
        broker = leader.replicas.worlds[1].broker
        (kept,) = broker.follower_sessions
        for epoch in (1, 2):
            asked = [at(0, index) for index in range(1, 3_000)]
            response = await incremental(leader, session, epoch, *asked, max_wait_ms=10_000)
            data = [each for topic in response.responses for each in topic.partitions]
            assert {each.error_code for each in data} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code}
            assert [each.partition_index for each in data] == list(range(1, 3_000)), "each is answered once"
            assert (len(kept.cursors), len(kept.dirty)) == (1, 0)

    play(tmp_path, scenario)


@pytest.mark.parametrize("broker_epoch", [None, 1])
def test_a_large_request_is_served_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broker_epoch: int | None
) -> None:
    """Also one that is refused: no step of it is longer than those of others."""
    sizes: list[int] = []
    note, collect = ReplicaFetch.note_progress, ReplicaFetch._collect

    def counted_note(self: ReplicaFetch, mentions: Any) -> Any:
        listed = list(mentions)
        sizes.append(len(listed))
        return note(self, listed)

    def counted_collect(self: ReplicaFetch, found: Any) -> None:
        sizes.append(len(found.results))
        collect(self, found)

    monkeypatch.setattr(ReplicaFetch, "note_progress", counted_note)
    monkeypatch.setattr(ReplicaFetch, "_collect", counted_collect)

    async def scenario(leader: Leader) -> None:
        await leader.start(1100)
        options = {} if broker_epoch is None else {"broker_epoch": broker_epoch}
        asked = [at(0, index) for index in range(1200)]
        request = leader.request(2, *asked, session_epoch=0, **options)
        response = await leader.followers[2].ask(request, 18)
        assert sorted(indexes(response)) == list(range(1200))
        assert max(sizes) == SLICE_ELEMENTS

    play(tmp_path, scenario)


def test_the_size_of_a_response_is_limited(tmp_path: Path) -> None:
    async def scenario(leader: Leader) -> None:
        await leader.start(4)
        for index in range(4):
            await leader.append(bytes(1000), index=index)
        response = await begin_session(leader, 4)
        sizes = [len(data.records or b"") for topic in response.responses for data in topic.partitions]
        assert sum(size > 0 for size in sizes) == 2, "whole batches, up to the limit"

    play(tmp_path, scenario, fetch_max_bytes="2500", replica_fetch_response_max_bytes="100")


@pytest.mark.parametrize("count", [8, 1100])
def test_no_more_is_decrypted_than_a_response_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    sizes: list[int] = []
    finish = Decryption.finish

    def counted(self: Decryption) -> None:
        finish(self)
        sizes.append(self._found.size_bytes)

    monkeypatch.setattr(Decryption, "finish", counted)

    async def scenario(leader: Leader) -> None:
        await leader.start(count, encryption_enable="true")
        for index in range(8):
            await leader.append(bytes(100_000), index=index)
        response = await begin_session(leader, count)
        parts = [data.records for topic in response.responses for data in topic.partitions]
        found = [len(records) for records in parts if records]
        assert found == sizes
        assert len(sizes) == 3, "whole batches, up to the limit"

    play(tmp_path, scenario, fetch_max_bytes="350000", replica_fetch_response_max_bytes="100")


def test_a_large_session_ends_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower_sessions, "STEP_CURSORS", 2)

    async def scenario(leader: Leader) -> None:
        await leader.start(5)
        await begin_session(leader, 5)
        broker = leader.replicas.worlds[1].broker
        (session,) = broker.follower_sessions
        connection = next(iter(broker.follower_sessions._by_connection))
        broker.follower_sessions.disconnected(connection)
        assert (len(session.cursors), len(broker.follower_sessions)) == (3, 0)
        await until(lambda: not session.cursors)
        assert not any(leader.replicas.partition(1, index=index).cursors for index in range(5))

    play(tmp_path, scenario)


def test_records_wake_a_waiting_follower(tmp_path: Path) -> None:
    async def scenario(leader: Leader) -> None:
        await leader.start(2)
        session = (await begin_session(leader, 2)).session_id
        client = leader.followers[2]
        client.send(leader.request(2, session_id=session, session_epoch=1, max_wait_ms=10_000), 18)
        await asyncio.sleep(0.05)
        await leader.append(b"a", index=1)
        response = await client.receive()
        assert indexes(response) == [1] and values(only(response).records) == [b"a"]
        # What it does not acknowledge is not sent again until there is more.
        client.send(leader.request(2, session_id=session, session_epoch=2, max_wait_ms=10_000), 18)
        await asyncio.sleep(0.05)
        await leader.append(b"b", index=1)
        assert values(only(await client.receive()).records) == [b"a", b"b"]
        # Losing the leadership is reported at once, too.
        client.send(leader.request(2, session_id=session, session_epoch=3, max_wait_ms=10_000), 18)
        await asyncio.sleep(0.05)
        await leader.replicas.elect("t", 3, index=1)
        response = only(await client.receive())
        assert response.error_code == ErrorCode.FENCED_LEADER_EPOCH.code
        assert (response.current_leader.leader_id, response.current_leader.leader_epoch) == (3, 1)

    play(tmp_path, scenario)


def test_a_large_response_is_continued_in_turn(tmp_path: Path) -> None:
    async def scenario(leader: Leader) -> None:
        await leader.start(2)
        session = (await begin_session(leader, 2)).session_id
        for _ in range(3):
            for index in (0, 1):
                await leader.append(bytes(1000), index=index)
        found: list[int] = []
        mentioned: list[FetchPartition] = []
        ends = {0: 0, 1: 0}
        for epoch in range(1, 7):
            data = only(await incremental(leader, session, epoch, *mentioned, max_bytes=1000))
            index = data.partition_index
            ends[index] += 1
            found.append(index)
            mentioned = [at(ends[index], index)]
        assert sorted(found) == [0, 0, 0, 1, 1, 1]
        assert found[0] != found[1], "each gets its turn"

    play(tmp_path, scenario)


def test_sessions_end_with_their_connection(tmp_path: Path) -> None:
    async def scenario(leader: Leader) -> None:
        await leader.start(2)
        session = (await begin_session(leader, 2)).session_id
        broker = leader.replicas.worlds[1].broker
        partition = leader.replicas.partition(1)
        assert len(broker.follower_sessions) == len(partition.cursors) == 1
        other = await leader.replicas.connect(1)
        request = leader.request(2, session_id=session, session_epoch=1)
        assert (await other.ask(request, 18)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND.code
        wrong = await incremental(leader, session, 5)
        assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH.code
        forgotten = [ForgottenTopic(topic_id=leader.topic_id, partitions=[0])]
        await incremental(leader, session, 1, forgotten_topics_data=forgotten)
        assert (len(partition.cursors), len(leader.replicas.partition(1, index=1).cursors)) == (0, 1)
        await leader.followers[2].close()
        await until(lambda: not leader.replicas.partition(1, index=1).cursors)
        assert len(broker.follower_sessions) == 0

    play(tmp_path, scenario)


def test_after_a_late_request_of_an_earlier_session_the_follower_begins_another(tmp_path: Path) -> None:
    async def scenario(leader: Leader) -> None:
        await leader.start()
        await leader.append(b"a", b"b")
        partition = leader.replicas.partition(1)
        await leader.fetch(2, node=3)
        present = await leader.replicas.connect(1)
        session = (await present.ask(leader.request(2, at(2), session_epoch=0), 18)).session_id
        waiting = leader.request(2, session_id=session, session_epoch=1, max_wait_ms=60_000)
        answered = asyncio.ensure_future(present.ask(waiting, 18))
        await begin_session(leader, 1)
        follower = partition.leader.followers[2]
        assert follower.end_offset == 0, "the request was sent before, and served after it"
        await leader.followers[2].close()
        assert not (await answered).error_code
        refused = await present.ask(leader.request(2, session_id=session, session_epoch=2), 18)
        assert refused.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND.code
        await present.ask(leader.request(2, at(2), session_epoch=0), 18)
        assert (follower.end_offset, partition.high_watermark) == (2, 2)

    play(tmp_path, scenario)


def test_a_late_request_from_before_a_truncation_is_no_progress(tmp_path: Path) -> None:
    """Whatever session ends: the offset of a log that diverges was never stored."""

    async def scenario(leader: Leader) -> None:
        await leader.start()
        await leader.append(b"a", b"b")
        partition = leader.replicas.partition(1)
        late = await leader.replicas.connect(1)
        await leader.fetch(2, node=3)
        await begin_session(leader, 1)
        follower = partition.leader.followers[2]
        answer = await late.ask(leader.request(2, at(3), session_epoch=0), 18)
        assert answer.responses[0].partitions[0].diverging_epoch is not None
        await leader.followers[2].close()
        await until(lambda: len(partition.cursors) == 1)
        assert (follower.end_offset, partition.high_watermark) == (0, 0)

    play(tmp_path, scenario)


def test_a_follower_that_catches_up_joins_the_isr(tmp_path: Path) -> None:
    async def scenario(leader: Leader) -> None:
        await leader.start(isr=(1,))
        await leader.append(b"a", b"b")
        replicas = leader.replicas
        await leader.fetch(0)
        assert replicas.state().isr == (1,)
        await leader.fetch(2)
        await until(lambda: replicas.partition(1).leader.isr == {1, 2})
        assert replicas.state().isr == (1, 2)
        # A fenced one does not.
        await replicas.fence(3)
        await leader.fetch(2, node=3)
        await asyncio.sleep(0.05)
        assert replicas.state().isr == (1, 2)
        await replicas.fence(3, is_fenced=False)
        await leader.fetch(2, node=3)
        await until(lambda: replicas.state().isr == (1, 2, 3))

    play(tmp_path, scenario)


def test_a_quiet_follower_stays_in_the_isr_by_its_session(tmp_path: Path) -> None:
    """A session does not mention partitions at whose end the follower is."""

    async def scenario(leader: Leader) -> None:
        await leader.start(2, isr=(1, 2))
        session = (await begin_session(leader, 2)).session_id
        for epoch in range(1, 8):
            await incremental(leader, session, epoch, max_wait_ms=100)
        assert {leader.replicas.state("t", index).isr for index in (0, 1)} == {(1, 2)}
        # Silence ends that.
        await until(lambda: {leader.replicas.state("t", index).isr for index in (0, 1)} == {(1,)})

    play(tmp_path, scenario, broker_session_timeout_ms="500", replica_lag_time_max_ms="500")
