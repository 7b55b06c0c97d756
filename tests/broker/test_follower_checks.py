"""Which partitions a leader examines as time passes."""

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

from runnel.broker.runtime import follower_checks
from runnel.broker.runtime.follower_checks import FollowerChecks
from tests.broker.replicas import until
from tests.broker.test_fetch_by_replica import Leader, begin_session, incremental, play

FAST = {"broker_session_timeout_ms": "800", "replica_lag_time_max_ms": "800"}


def isr(leader: Leader, index: int) -> tuple[int, ...]:
    return leader.replicas.state("t", index).isr


def test_partitions_that_are_in_sync_are_not_examined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(leader: Leader) -> None:
        await leader.start(200, isr=(1, 2))
        session = (await begin_session(leader, 200)).session_id
        checks = leader.replicas.worlds[1].broker.replication._checks
        examined: list[Any] = []
        check = checks._check

        def counted(partition: Any, now_ms: int) -> bool:
            examined.append(partition)
            return check(partition, now_ms)

        epochs = itertools.count(1)
        async with asyncio.timeout(20):
            # A follower that is silent is watched.
            while checks._watched:
                await incremental(leader, session, next(epochs), max_wait_ms=50)
        checks._check = counted
        ticks = checks._ticks
        for epoch in itertools.islice(epochs, 7):
            await incremental(leader, session, epoch, max_wait_ms=100)
        passed = checks._ticks - ticks
        share = 200 * follower_checks.TICK_MS // follower_checks.SLOW_ROUND_MS + 1
        assert passed and len(examined) <= passed * share, "more than their share of the slow round"
        assert {isr(leader, index) for index in range(200)} == {(1, 2)}
        # Silence ends that.
        await until(lambda: {isr(leader, index) for index in range(200)} == {(1,)})

    play(tmp_path, scenario, broker_session_timeout_ms="3000", replica_lag_time_max_ms="3000")


def test_many_partitions_are_examined_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower_checks, "STEP_PARTITIONS", 10)
    sizes: list[int] = []
    step = FollowerChecks._step

    def counted(self: FollowerChecks) -> None:
        before = len(self._due)
        step(self)
        sizes.append(before - len(self._due))

    monkeypatch.setattr(FollowerChecks, "_step", counted)

    async def scenario(leader: Leader) -> None:
        await leader.start(50, isr=(1, 2))
        await until(lambda: {isr(leader, index) for index in range(50)} == {(1,)})
        assert max(sizes) == 10

    play(tmp_path, scenario, **FAST)


def test_a_failed_check_does_not_end_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower_checks, "STEP_PARTITIONS", 10)
    failures: list[Any] = []

    async def scenario(leader: Leader) -> None:
        await leader.start(50, isr=(1, 2))
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
        checks = leader.replicas.worlds[1].broker.replication._checks
        check = checks._check

        def fail_once(partition: Any, now_ms: int) -> bool:
            if not failures and len(checks._due) >= 10:
                raise ZeroDivisionError
            return check(partition, now_ms)

        checks._check = fail_once
        await until(lambda: {isr(leader, index) for index in range(50)} == {(1,)})
        assert [type(failure) for failure in failures] == [ZeroDivisionError]

    play(tmp_path, scenario, **FAST)


def test_a_follower_that_does_not_acknowledge_records_leaves_the_isr(tmp_path: Path) -> None:
    """Its session fetches, and does not mention the partition: that is not at its end any more."""

    async def scenario(leader: Leader) -> None:
        await leader.start(2, isr=(1, 2))
        session = (await begin_session(leader, 2)).session_id
        checks = leader.replicas.worlds[1].broker.replication._checks
        await until(lambda: not checks._watched)
        await leader.append(b"a", index=1)
        epoch = 1
        while isr(leader, 1) == (1, 2):
            await incremental(leader, session, epoch, max_wait_ms=100)
            epoch += 1
            assert epoch < 100
        assert isr(leader, 0) == (1, 2)

    play(tmp_path, scenario, **FAST)
