"""Promises: one outcome, one callback, and no way to leave that callback waiting."""

import asyncio
import gc
from collections.abc import Callable

import pytest

from runnel.broker.runtime.promise import (
    BrokenPromise,
    MaybePromise,
    Promise,
    chain,
    gather,
    in_task,
    settled,
)


def outcome_of(value: MaybePromise[int]) -> list[int | Exception]:
    outcomes: list[int | Exception] = []
    if isinstance(value, Promise):
        value.on_settled(outcomes.append)
    else:
        outcomes.append(value)
    return outcomes


@pytest.mark.parametrize("is_early", [True, False])
def test_the_callback_gets_the_value_whenever_it_comes(is_early: bool) -> None:
    promise: Promise[int] = Promise()
    if is_early:
        promise.resolve(7)
    outcomes = outcome_of(promise)
    if not is_early:
        assert outcomes == []
        promise.resolve(7)
    assert outcomes == [7]


def test_falsy_values_are_values() -> None:
    promise: Promise[int] = Promise()
    promise.resolve(0)
    assert outcome_of(promise) == [0]


def test_an_outcome_is_final() -> None:
    promise: Promise[int] = Promise()
    promise.resolve(1)
    with pytest.raises(AssertionError):
        promise.fail(ValueError())


def test_a_chain_follows_promises_and_stops_at_the_first_failure() -> None:
    first: Promise[int] = Promise()
    second: Promise[int] = Promise()
    outcomes = outcome_of(chain(first, lambda value: second if value else 0))
    first.resolve(1)
    assert outcomes == []
    second.resolve(5)
    assert outcomes == [5]
    failure = ValueError("no")
    broken: Promise[int] = Promise()
    outcomes = outcome_of(chain(broken, lambda value: value + 1))
    broken.fail(failure)
    assert outcomes == [failure]


def total(values: list[int]) -> int:
    return sum(values)


def combine_fails(promise: Promise[int]) -> MaybePromise[int]:
    parts: list[MaybePromise[int]] = [promise, 1]
    return gather(parts, lambda values: values[2])


def step_fails(promise: Promise[int]) -> MaybePromise[int]:
    return chain(promise, lambda value: 1 // (value - value))


@pytest.mark.parametrize("continued", [combine_fails, step_fails])
def test_a_continuation_that_raises_fails_the_promise(
    continued: Callable[[Promise[int]], MaybePromise[int]],
) -> None:
    promise: Promise[int] = Promise()
    outcomes = outcome_of(continued(promise))
    promise.resolve(3)
    assert [type(outcome) for outcome in outcomes] in ([IndexError], [ZeroDivisionError])


def test_gather_waits_for_all_and_fails_with_the_first_failure() -> None:
    one, two = Promise[int](), Promise[int]()
    parts: list[MaybePromise[int]] = [one, 10, two]
    outcomes = outcome_of(gather(parts, total))
    two.resolve(2)
    one.resolve(1)
    assert outcomes == [13]
    one, two = Promise[int](), Promise[int]()
    parts = [one, two]
    outcomes = outcome_of(gather(parts, total))
    failure = ValueError()
    one.fail(failure)
    two.resolve(1)
    assert outcomes == [failure]


async def dropped(is_abandoned: bool) -> list[int | Exception]:
    promise: Promise[int] = Promise()
    outcomes = outcome_of(promise if is_abandoned else chain(promise, lambda value: value))
    if is_abandoned:
        promise.abandon()
    del promise
    gc.collect()
    return outcomes


def test_a_dropped_promise_is_broken() -> None:
    assert [type(outcome) for outcome in asyncio.run(dropped(False))] == [BrokenPromise]


def test_an_abandoned_promise_has_no_outcome() -> None:
    assert asyncio.run(dropped(True)) == []


def test_a_promise_of_another_event_loop_has_no_outcome() -> None:
    held: list[Promise[int]] = [Promise()]

    async def watch() -> list[int | Exception]:
        return outcome_of(held[0])

    async def drop() -> None:
        held.clear()
        gc.collect()

    outcomes = asyncio.run(watch())
    asyncio.run(drop())
    assert outcomes == []


def test_a_task_resolves_fails_or_breaks_its_promise() -> None:
    async def value() -> int:
        await asyncio.sleep(0)
        return 4

    async def bug() -> int:
        raise ZeroDivisionError

    async def scenario() -> None:
        tasks: set[asyncio.Task[int]] = set()
        assert await settled(in_task(value(), tasks)) == 4
        with pytest.raises(ZeroDivisionError):
            await settled(in_task(bug(), tasks))
        outcomes = outcome_of(in_task(value(), tasks))
        for task in tasks:
            task.cancel()
        await asyncio.sleep(0.001)
        assert [type(outcome) for outcome in outcomes] == [BrokenPromise] and not tasks

    asyncio.run(scenario())
