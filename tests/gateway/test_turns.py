"""One tab does not stop the others: long work is done in turns."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from runnel.client.chunk import Message
from runnel.gateway.console.message_filter import read_filter
from runnel.gateway.console.message_reading import matching
from runnel.gateway.turns import TURN, TURN_BYTES, converted

Work = Callable[[Iterator[Message]], Awaitable[list[Any]]]


def matched(messages: Iterator[Message]) -> Awaitable[list[Any]]:
    return matching(messages, read_filter("$.a=1").matches)


def shown(messages: Iterator[Message]) -> Awaitable[list[Any]]:
    return converted(messages, lambda message: message.offset)


both = pytest.mark.parametrize("work", [matched, shown])


def turns_taken(work: Work, messages: Iterator[Message]) -> tuple[int, int]:
    """How often another task ran meanwhile, and how many results there are."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def run() -> int:
        task = asyncio.create_task(others())
        found = await work(messages)
        task.cancel()
        return len(found)

    count = asyncio.run(run())
    return turns, count


def message(number: int, value: bytes, headers: int = 0) -> Message:
    return Message("t", 0, number, 0, None, value, [("", None)] * headers)


@both
def test_many_small_messages(work: Work) -> None:
    turns, count = turns_taken(work, (message(number, b'{"a": 1}') for number in range(10 * TURN)))
    assert turns >= 9 and count == 10 * TURN


@both
def test_few_large_messages(work: Work) -> None:
    large = b'{"a": 1, "b": "' + b"x" * TURN_BYTES + b'"}'
    turns, count = turns_taken(work, (message(number, large) for number in range(10)))
    assert turns >= 9 and count == 10


@both
def test_messages_with_many_headers(work: Work) -> None:
    turns, count = turns_taken(work, (message(number, b'{"a": 1}', 6_000) for number in range(10)))
    assert turns >= 9 and count == 10
