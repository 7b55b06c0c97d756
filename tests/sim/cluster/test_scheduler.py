"""Processes on one scheduler: virtual time, pauses, and ends."""

import asyncio

import pytest

from runnel.sim.cluster.scheduler import ProcessLoop, Scheduler, Stuck


async def count(events: list[str], name: str, seconds: float) -> None:
    for number in range(3):
        await asyncio.sleep(seconds)
        events.append(f"{name}{number} at {asyncio.get_running_loop().time():g}")


def two_processes(scheduler: Scheduler, events: list[str]) -> tuple[ProcessLoop, ProcessLoop]:
    first, second = scheduler.process("a"), scheduler.process("b")
    first.create_task(count(events, "a", 1))
    second.create_task(count(events, "b", 1.5))
    return first, second


def test_processes_share_the_time() -> None:
    scheduler, events = Scheduler(), list[str]()
    two_processes(scheduler, events)
    scheduler.run_for(10)
    assert events == ["a0 at 1", "b0 at 1.5", "a1 at 2", "b1 at 3", "a2 at 3", "b2 at 4.5"]
    assert scheduler.now == 10


def test_a_killed_process_does_nothing_more() -> None:
    scheduler, events = Scheduler(), list[str]()
    first, _ = two_processes(scheduler, events)
    scheduler.run_for(1.2)
    first.kill()
    scheduler.run_for(10)
    assert events == ["a0 at 1", "b0 at 1.5", "b1 at 3", "b2 at 4.5"]


def test_a_paused_process_continues_where_it_was() -> None:
    scheduler, events = Scheduler(), list[str]()
    first, _ = two_processes(scheduler, events)
    scheduler.run_for(0.5)
    first.pause()
    scheduler.run_for(4.5)
    assert events == ["b0 at 1.5", "b1 at 3", "b2 at 4.5"]
    first.resume()
    scheduler.run_for(10)
    assert events[3:] == ["a0 at 5", "a1 at 6", "a2 at 7"]


def test_an_exception_that_a_process_does_not_handle_ends_the_simulation() -> None:
    scheduler = Scheduler()
    scheduler.process("a").call_later(1, lambda: 1 / 0)
    with pytest.raises(AssertionError, match=r"a: .*ZeroDivisionError"):
        scheduler.run_for(2)


def test_a_process_that_never_waits_is_found() -> None:
    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    scheduler = Scheduler()
    scheduler.process("a").create_task(spin())
    with pytest.raises(Stuck, match="a runs"):
        scheduler.run_for(1)


def test_the_observer_sees_each_step_once() -> None:
    scheduler, seen = Scheduler(), list[tuple[str, float]]()
    scheduler.observer = lambda loop: seen.append((loop.name, scheduler.now))
    two_processes(scheduler, [])
    scheduler.run_for(10)
    assert seen == [("a", 0), ("b", 0), ("a", 1), ("b", 1.5), ("a", 2), ("b", 3), ("a", 3), ("b", 4.5)]
