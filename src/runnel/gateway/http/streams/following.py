"""A stream of messages from a position on, without an end: what was there, then what arrives."""

import asyncio
from collections.abc import AsyncGenerator

from runnel.client.fetching import Fetched, FetchSizes
from runnel.gateway.http.limits import STREAM_IDLE_S, STREAM_WRITE_BYTES
from runnel.gateway.http.message_ids import Cursor
from runnel.gateway.http.models import Gap
from runnel.gateway.http.polling import Subscription, fetch
from runnel.gateway.http.streams.feeds import Entry, Feed, entry_of
from runnel.model.ids import TopicPartition

CATCH_UP_SIZES = FetchSizes(1024 * 1024, 512 * 1024)

Part = list[Entry | Gap]
"""What is delivered next; nothing is a sign of life."""


async def follow(found: Subscription, feed: Feed) -> AsyncGenerator[Part]:
    """Messages in parts; an empty part after a while without. Ends with its feed."""
    while not feed.is_stopped:
        number, target = feed.end, dict(feed.cursor.positions)
        async for part in _catch_up(found, feed, target):
            yield part
        while feed.has(number) and not feed.is_stopped:
            entries = feed.entries(number, STREAM_WRITE_BYTES)
            if entries:
                number += len(entries)
                for entry in entries:
                    found.positions[TopicPartition(found.view.name, entry.partition)] = entry.offset + 1
                yield [*entries]
            elif not await feed.changed(STREAM_IDLE_S):
                yield []


async def _catch_up(found: Subscription, feed: Feed, target: dict[int, int]) -> AsyncGenerator[Part]:
    """Read up to positions of the feed, exactly."""
    cursor = found.cursor()
    pending = list(found.positions)
    while not feed.is_stopped:
        pending = [each for each in pending if found.positions[each] < target[each.partition]]
        if not pending:
            return
        fetched = await fetch(found, pending, CATCH_UP_SIZES)
        if fetched is None:
            gaps: Part = [*found.gaps]
            found.gaps.clear()
            cursor = found.cursor()
            yield gaps
            continue
        for each in fetched:
            async for part in _parts(found, each, target[each.chunk.partition.partition], cursor):
                yield part
        # Another one is first, of which a broker returns a batch of any size.
        pending = pending[1:] + pending[:1]


async def _parts(found: Subscription, fetched: Fetched, end: int, cursor: Cursor) -> AsyncGenerator[Part]:
    """The messages of a partition before an offset."""
    partition = fetched.chunk.partition
    part: Part = []
    size_bytes = 0
    for message in fetched.chunk.messages():
        if message.offset >= end:
            break
        entry = entry_of(message, found.shown, cursor)
        found.positions[partition] = message.offset + 1
        part.append(entry)
        size_bytes += len(entry.data)
        if size_bytes > STREAM_WRITE_BYTES:
            yield part
            part, size_bytes = [], 0
            await asyncio.sleep(0)
    if part:
        yield part
    found.positions[partition] = min(fetched.chunk.next_offset, end)
