"""What a follower requests of its leader: a session of any size, in requests of a limited one."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from runnel.broker.runtime import replica_fetcher
from runnel.broker.runtime.fetch_sessions import NO_SESSION
from runnel.broker.runtime.replica_fetcher import FIRST_DELAY_MS, MENTIONED_MAX, ReplicaFetcher
from runnel.controller.image import MetadataImage
from runnel.controller.settings import Settings
from runnel.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition
from runnel.server.shells import SystemClock

COUNT = 3 * MENTIONED_MAX
SESSION = 7


def partition(index: int) -> Any:
    log = SimpleNamespace(written_offset=0, leader_epoch=0, log_start_offset=0, failure=None)
    return SimpleNamespace(
        name=TopicPartition("t", index),
        topic_id=bytes(16),
        epoch=0,
        fetch_offset=0,
        log=log,
        is_leader=False,
        is_changing=False,
    )


class LateClock(SystemClock):
    """A clock that may be set forward."""

    late_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.late_ms


class Rounds:
    """The fetcher, and what its leader answers."""

    def __init__(self, session_id: int) -> None:
        self.delayed: list[Callable[[], None]] = []
        """What the fetcher does after a delay."""
        self.clock = LateClock()
        timers = SimpleNamespace(call_later=lambda delay_ms, action: self.delayed.append(action))
        throttle = SimpleNamespace(applies_to=lambda name: False)
        broker: Any = SimpleNamespace(
            epoch=1,
            node_id=2,
            settings=Settings({}),
            suspects=SimpleNamespace(connection_lost=lambda leader: None),
            replication=SimpleNamespace(follower_throttle=throttle),
            metadata=SimpleNamespace(image=MetadataImage()),
            clock=self.clock,
            timers=timers,
        )
        self.fetcher = ReplicaFetcher(broker, 1, 0)
        self.session_id = session_id
        for index in range(COUNT):
            self.fetcher.add(partition(index))

    def next(self) -> tuple[FetchRequest, set[int], set[int]]:
        """(the next request, the partitions that it mentions, and those that it forgets)."""
        request = self.fetcher._request()
        assert request is not None
        mentioned = {asked.partition for topic in request.topics for asked in topic.partitions}
        forgotten = {index for topic in request.forgotten_topics_data for index in topic.partitions}
        assert max(len(mentioned), len(forgotten)) <= MENTIONED_MAX
        return request, mentioned, forgotten

    async def answer(self, *data: PartitionData) -> None:
        topics = [FetchableTopicResponse(topic_id=bytes(16), partitions=list(data))] if data else []
        response = FetchResponse(session_id=self.session_id, responses=topics)
        await self.fetcher._process(response, None)  # type: ignore[arg-type]


async def all_rounds(rounds: Rounds) -> set[int]:
    """Until all partitions were mentioned; returns them."""
    found: set[int] = set()
    while True:
        request, mentioned, _ = rounds.next()
        assert not mentioned & found, "each is mentioned once"
        found |= mentioned
        await rounds.answer()
        if request.max_wait_ms > 0:
            return found


def test_a_large_session_is_built_by_several_requests() -> None:
    async def run() -> None:
        rounds = Rounds(SESSION)
        try:
            assert rounds.next()[0].session_epoch == 0
            await rounds.answer()
            request, _, _ = rounds.next()
            assert (request.session_id, request.session_epoch, request.max_wait_ms) == (SESSION, 1, 0)
            await rounds.answer()
            request, mentioned, _ = rounds.next()
            assert (request.session_epoch, len(mentioned)) == (2, MENTIONED_MAX)
            assert request.max_wait_ms > 0, "all are in the session: wait for records"
            await rounds.answer()
            assert rounds.next()[1] == set(), "nothing changed"
            # A lost connection: all are mentioned again.
            rounds.fetcher._begin_session()
            assert await all_rounds(rounds) == set(range(COUNT))
            # And forgotten in parts.
            for index in range(COUNT - 1):
                rounds.fetcher.remove(TopicPartition("t", index))
            forgotten: list[int] = []
            for left in (2, 1, 0):
                request, _, some = rounds.next()
                assert bool(request.max_wait_ms) == (left == 0), (
                    "the leader relies on it (leadership_proof.py)"
                )
                assert some, "as on this"
                forgotten += some
                await rounds.answer()
            assert sorted(forgotten) == list(range(COUNT - 1))
        finally:
            await rounds.fetcher.close()

    asyncio.run(run())


def test_without_a_session_each_partition_gets_its_turn() -> None:
    async def run() -> None:
        rounds = Rounds(NO_SESSION)
        try:
            found: list[int] = []
            for _ in range(2 * COUNT // MENTIONED_MAX):
                found += rounds.next()[1]
                await rounds.answer()
            assert sorted(found) == sorted([*range(COUNT)] * 2)
        finally:
            await rounds.fetcher.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    "error", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR]
)
def test_a_rejected_partition_returns_after_a_delay(error: ErrorCode) -> None:
    """Also if no other metadata comes: it may have been applied before the response was processed."""

    async def run() -> None:
        rounds = Rounds(SESSION)
        try:
            await all_rounds(rounds)
            await rounds.answer(PartitionData(5, error.code))
            assert rounds.next()[1:] == (set(), {5})
            (again,) = rounds.delayed
            again()
            assert rounds.next()[1:] == ({5}, set())
        finally:
            await rounds.fetcher.close()

    asyncio.run(run())


def test_no_request_waits_longer_than_until_a_rejected_partition_returns() -> None:
    async def run() -> None:
        rounds = Rounds(SESSION)
        try:
            await all_rounds(rounds)
            wait_ms = rounds.next()[0].max_wait_ms
            await rounds.answer(PartitionData(5, ErrorCode.UNKNOWN_LEADER_EPOCH.code))
            assert 0 < rounds.next()[0].max_wait_ms <= FIRST_DELAY_MS < wait_ms
            rounds.clock.late_ms = FIRST_DELAY_MS
            assert rounds.next()[0].max_wait_ms == wait_ms
        finally:
            await rounds.fetcher.close()

    asyncio.run(run())


def test_what_was_removed_while_the_session_began_is_forgotten() -> None:
    """The leader would take it for fetched as long as the session lasts."""

    async def run() -> None:
        rounds = Rounds(SESSION)
        try:
            assert 5 in rounds.next()[1]
            rounds.fetcher.remove(TopicPartition("t", 5))
            await rounds.answer()
            assert rounds.next()[2] == {5}
        finally:
            await rounds.fetcher.close()

    asyncio.run(run())


def test_a_log_that_recovers_is_fetched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing reports it to the fetcher."""
    monkeypatch.setattr(replica_fetcher, "REMINDER_MS", 1)

    async def run() -> None:
        rounds = Rounds(SESSION)
        fetcher = rounds.fetcher
        try:
            assert fetcher._task is not None
            fetcher._task.cancel()
            logs: list[Any] = [followed.partition.log for followed in fetcher._by_name.values()]
            for log in logs:
                log.failure = "no space left on device"
            assert fetcher._request() is None
            image = SimpleNamespace(partition=lambda *name: SimpleNamespace(isr=(1,)))
            fetcher._broker.metadata = SimpleNamespace(image=image)  # type: ignore[assignment]
            logs[5].failure = None
            await fetcher._wait()
            assert rounds.next()[1] == {5}
        finally:
            await fetcher.close()

    asyncio.run(run())
