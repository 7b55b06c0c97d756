"""Reading and converting messages in turns of the event loop, which many clients share, and in little memory.

Messages are chosen by all who may write to a topic: a batch of some kilobytes may decompress to any size, and
a record of a megabyte may have half a million headers.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

from runnel.client.chunk import Message, Room

T = TypeVar("T")

TURN = 500
TURN_BYTES = 512 * 1024
"""Messages, or their bytes, that are decoded, compared or converted before others get a turn."""

HEADER_BYTES = 100
"""A header as objects, without its content."""

BATCH_BYTES_MAX = 32 * 1024 * 1024
"""A decompressed batch: thirty times the largest default size of one. One request has room for as much."""

STREAMS_BYTES_MAX = 256 * 1024 * 1024
"""Decompressed batches of all streams of a principal that catch up."""

HEADERS_MAX = 10_000
"""Headers of a record that is read."""


def new_room(bytes_max: int | None = None) -> Room:
    """The room for the batches of a reader; that of one batch unless given."""
    return Room(bytes_max or BATCH_BYTES_MAX, BATCH_BYTES_MAX, HEADERS_MAX)


def size_of(message: Message) -> int:
    """The bytes of a message, and what its headers take beside them."""
    size_bytes = len(message.value or b"") + len(message.key or b"")
    if message.headers:
        size_bytes += sum(len(name) + len(value or b"") + HEADER_BYTES for name, value in message.headers)
    return size_bytes


class Turns:
    """Tells when enough was done for one turn of the event loop."""

    def __init__(self) -> None:
        self._messages = self._bytes = 0

    def is_over(self, message: Message) -> bool:
        """After this message, others are to be served."""
        self._messages += 1
        self._bytes += size_of(message)
        if self._messages < TURN and self._bytes < TURN_BYTES:
            return False
        self._messages = self._bytes = 0
        return True


async def converted(messages: Iterable[Message], convert: Callable[[Message], T]) -> list[T]:
    """What each message is converted to."""
    found, turns = [], Turns()
    for message in messages:
        found.append(convert(message))
        if turns.is_over(message):
            await asyncio.sleep(0)
    return found
