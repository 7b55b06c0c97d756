"""Proof of leadership: which fetches of followers count, and how reads share one."""

import asyncio
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runnel.broker.runtime import follower_sessions, leadership_proof
from runnel.broker.runtime.follower_sessions import FollowerSession
from runnel.broker.runtime.leadership_proof import WARNING_INTERVAL_MS, LeadershipProofs, prove_leadership
from runnel.broker.runtime.promise import Promise, in_task, settled
from runnel.messages.fetch import ForgottenTopic
from runnel.model.errors import ApiError, ErrorCode
from tests.broker.replicas import until
from tests.broker.test_fetch_by_replica import Leader, at, begin_session, incremental, play

LONG_MS = 20_000
"""Longer than any test takes."""


def sessions_of(leader: Leader) -> list[FollowerSession]:
    return list(leader.replicas.worlds[1].broker.follower_sessions)


async def proof(leader: Leader, index: int = 0) -> "asyncio.Task[None]":
    """A proof that has begun, and waits for its followers."""
    task = asyncio.create_task(prove_leadership(leader.replicas.partition(1, index=index), LONG_MS))
    await until(lambda: task.done() or all(session._awaited for session in sessions_of(leader)))
    return task


async def error_of(task: "asyncio.Task[None]") -> ErrorCode:
    with pytest.raises(ApiError) as raised:
        await task
    return raised.value.error


async def wait_for_records(leader: Leader, session_id: int, epoch: int) -> None:
    """A request of node 2 that waits at the leader."""
    request = leader.request(2, session_id=session_id, session_epoch=epoch, max_wait_ms=LONG_MS)
    leader.followers[2].send(request, 18)
    await until(lambda: all(session.waiting for session in sessions_of(leader)))


def test_a_request_that_may_have_been_sent_before_proves_nothing(tmp_path: Path) -> None:
    async def scenario(leader: Leader) -> None:
        await leader.start(isr=(1, 2))
        session = (await begin_session(leader, 1)).session_id
        task = await proof(leader)
        await incremental(leader, session, 1)
        assert list(sessions_of(leader)[0]._awaited.values()) == [1]
        # Also of a follower that never lets its requests wait.
        await incremental(leader, session, 2)
        await task
        # One that waits is answered, and its successor counts.
        await wait_for_records(leader, session, 3)
        task = await proof(leader)
        await leader.followers[2].receive()
        await incremental(leader, session, 4)
        await task

    play(tmp_path, scenario)


@pytest.mark.parametrize("is_waiting", [True, False])
def test_a_session_that_ends_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_waiting: bool
) -> None:
    """Also while not all of its partitions are detached."""
    monkeypatch.setattr(follower_sessions, "STEP_CURSORS", 1)

    async def scenario(leader: Leader) -> None:
        await leader.start(20, isr=(1, 2))
        session_id = (await begin_session(leader, 20)).session_id
        (session,) = sessions_of(leader)
        if is_waiting:
            await wait_for_records(leader, session_id, 1)
        task = await proof(leader, index=19)
        await leader.followers[2].close()
        assert await error_of(task) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert session.cursors, "it is found by its partitions still"
        assert await error_of(await proof(leader, index=19)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await until(lambda: not session.cursors)
        assert session.fetched_again().exception() is not None

    play(tmp_path, scenario)


def test_a_follower_that_has_more_to_forget_proves_nothing(tmp_path: Path) -> None:
    """It may lead the partition already."""

    async def scenario(leader: Leader) -> None:
        await leader.start(3, isr=(1, 2))
        session = (await begin_session(leader, 3)).session_id
        await wait_for_records(leader, session, 1)
        task = await proof(leader, index=2)
        await leader.followers[2].receive()
        for index in range(2):
            forgotten = [ForgottenTopic(topic_id=leader.topic_id, partitions=[index])]
            await incremental(leader, session, 2 + index, forgotten_topics_data=forgotten)
            assert not task.done() and sessions_of(leader)[0]._awaited
        forgotten = [ForgottenTopic(topic_id=leader.topic_id, partitions=[2])]
        await incremental(leader, session, 4, forgotten_topics_data=forgotten, max_wait_ms=1)
        assert await error_of(task) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    play(tmp_path, scenario)


def test_of_two_sessions_the_one_whose_fetches_count_is_waited_for(tmp_path: Path) -> None:
    """A follower has connected again, and the leader does not know that its first connection is dead."""

    async def scenario(leader: Leader) -> None:
        await leader.start(isr=(1, 2))
        await begin_session(leader, 1)
        dead = leader.followers[2]
        leader.followers[2] = await leader.replicas.connect(1)
        session = (await begin_session(leader, 1)).session_id
        first, present = sessions_of(leader)
        task = asyncio.create_task(prove_leadership(leader.replicas.partition(1), LONG_MS))
        await until(lambda: first._awaited or present._awaited)
        assert present._awaited and not first._awaited
        for epoch in (1, 2):
            await incremental(leader, session, epoch)
        await task
        await dead.close()

    play(tmp_path, scenario)


def test_a_failed_proof_leaves_nothing_behind(tmp_path: Path) -> None:
    async def scenario(leader: Leader) -> None:
        await leader.start()
        await begin_session(leader, 1)
        (session,) = sessions_of(leader)
        tasks = len(asyncio.all_tasks())
        for _ in range(3):
            with pytest.raises(ApiError):
                await prove_leadership(leader.replicas.partition(1), LONG_MS)
        assert not session._awaited and len(asyncio.all_tasks()) == tasks, "node 3 does not fetch"
        await begin_session(leader, 1, node=3)
        task = await proof(leader)
        assert session._awaited
        await leader.followers[3].close()
        assert await error_of(task) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await until(lambda: not session._awaited)

    play(tmp_path, scenario)


def test_a_partition_that_is_mentioned_in_a_later_epoch_is_not_followed(tmp_path: Path) -> None:
    async def scenario(leader: Leader) -> None:
        await leader.start(isr=(1, 2))
        session = (await begin_session(leader, 1)).session_id
        task = await proof(leader)
        await incremental(leader, session, 1)
        found = await incremental(leader, session, 2, at(0, epoch=1))
        assert found.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH.code
        assert await error_of(task) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    play(tmp_path, scenario)


class Proofs:
    """Proofs of two partitions that end when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: list[tuple[Any, asyncio.Future[None]]] = []
        self.now_ms = 0
        self.tasks: set[asyncio.Task[Any]] = set()
        broker: Any = SimpleNamespace(
            run=lambda coroutine: in_task(coroutine, self.tasks),
            clock=SimpleNamespace(monotonic_ms=lambda: self.now_ms),
        )
        self.shared = LeadershipProofs(broker)
        monkeypatch.setattr(leadership_proof, "prove_leadership", self._prove)

    async def _prove(self, partition: Any, timeout_ms: int) -> None:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.begun.append((partition, ended))
        await ended

    def next(self, partition: Any) -> Promise[ErrorCode | None]:
        return self.shared.next(partition, LONG_MS)


class Partition:
    """Stands for a log: known by its identity."""

    def __init__(self, name: str) -> None:
        self.name = name


def test_reads_share_the_proof_that_begins_after_them(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        proofs = Proofs(monkeypatch)
        one: Any = Partition("a-0")
        other: Any = Partition("a-1")
        first = [proofs.next(one), proofs.next(one)]
        await until(lambda: len(proofs.begun) == 1)
        later = [proofs.next(one) for _ in range(100)]
        apart = proofs.next(other)
        await until(lambda: len(proofs.begun) == 2)
        assert [partition for partition, _ in proofs.begun] == [one, other]
        proofs.begun[0][1].set_result(None)
        assert [await settled(proven) for proven in first] == [None, None]
        assert not any(proven.is_settled for proven in later), "they came after it had begun"
        await until(lambda: len(proofs.begun) == 3)
        proofs.begun[2][1].set_exception(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        outcomes = [await settled(proven) for proven in later]
        assert outcomes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 100
        proofs.begun[1][1].set_exception(ValueError("a bug"))
        with pytest.raises(ValueError, match="a bug"):
            await settled(apart)
        await until(lambda: not proofs.tasks)
        assert len(proofs.begun) == 3 and not proofs.shared._waiting

    asyncio.run(run())


def test_too_few_replicas_in_sync_are_warned_of_now_and_then(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        proofs = Proofs(monkeypatch)
        partition: Any = Partition("a-0")
        lasting, passing = ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER
        warnings = []
        for now_ms, error in (
            (0, passing),
            (0, lasting),
            (WARNING_INTERVAL_MS - 1, lasting),
            (WARNING_INTERVAL_MS, lasting),
        ):
            proofs.now_ms = now_ms
            proven = proofs.next(partition)
            await until(lambda: proofs.begun)
            proofs.begun.pop()[1].set_exception(ApiError(error, "1 replicas are in sync, 2 must be"))
            assert await settled(proven) is error
            await until(lambda: not proofs.tasks)
            warnings.append(len(caplog.records))
        assert warnings == [0, 1, 1, 2]
        assert "a-0" in caplog.text and "2 must be" in caplog.text

    with caplog.at_level(logging.WARNING, "runnel.broker"):
        asyncio.run(run())
