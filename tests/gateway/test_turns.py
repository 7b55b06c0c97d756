"""One tab does not stop the others: long work is done in turns."""

import asyncio
from collections.abc import Iterator

from runnel.client.chunk import Message
from runnel.gateway.console.message_filter import read_filter
from runnel.gateway.console.message_reading import matching
from runnel.gateway.turns import TURN, TURN_BYTES


def turns_taken(messages: Iterator[Message]) -> tuple[int, int]:
    """How often another task ran meanwhile, and how many messages matched."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def run() -> int:
        task = asyncio.create_task(others())
        found = await matching(messages, read_filter("$.a=1").matches)
        task.cancel()
        return len(found)

    matched = asyncio.run(run())
    return turns, matched


def message(number: int, value: bytes) -> Message:
    return Message("t", 0, number, 0, None, value, [])


def test_many_small_messages() -> None:
    turns, matched = turns_taken(message(number, b'{"a": 1}') for number in range(10 * TURN))
    assert turns >= 9 and matched == 10 * TURN


def test_few_large_messages() -> None:
    large = b'{"a": 1, "b": "' + b"x" * TURN_BYTES + b'"}'
    turns, matched = turns_taken(message(number, large) for number in range(10))
    assert turns >= 9 and matched == 10
