"""A stream of messages from a position on, without an end: what was there, then what arrives."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from runnel.client.chunk import NoRoom, Room
from runnel.client.cluster import TopicView
from runnel.client.fetching import Fetched, FetchSizes
from runnel.gateway.http.limits import STREAM_IDLE_S, STREAM_PARTITIONS_MAX, STREAM_WRITE_BYTES
from runnel.gateway.http.message_ids import Cursor
from runnel.gateway.http.models import Gap, SubscribeQuery
from runnel.gateway.http.polling import Subscription, fetch, into_range
from runnel.gateway.http.problems import Problem
from runnel.gateway.http.requests import find_topic
from runnel.gateway.http.streams.feeds import Entry, Feed, Feeds, entry_of
from runnel.gateway.turns import Turns
from runnel.model.ids import TopicPartition

CATCH_UP_SIZES = FetchSizes(1024 * 1024, 512 * 1024)

BEHIND_S = 5.0
"""How long a stream waits for a feed that has not read yet what the stream has, at another gateway."""

OTHER_TOPIC_S = 0.5
"""The pause before a stream reads again, if metadata have another topic by the same name."""

ROOM_PAUSE_S = 0.2
"""The pause before a stream reads again, if other streams of its principal hold the room for batches."""

Part = list[Entry | Gap]
"""What is delivered next; nothing is a sign of life."""


def check_partitions(view: TopicView, query: SubscribeQuery) -> None:
    """422 if every event would be too large."""
    if query.partition is None and len(view.partitions) > STREAM_PARTITIONS_MAX:
        raise Problem(
            422,
            f"the topic has more than {STREAM_PARTITIONS_MAX} partitions: follow one of them, by partition=",
        )


async def follow(feeds: Feeds, found: Subscription) -> AsyncGenerator[Part]:
    """Messages in parts: an empty one when it has begun, and after a while without messages.

    Ends when all streams do, and with an error that ends the feed; continues if partitions are added.
    """
    while True:
        async with feeds.follow(found.feed_key, list(found.positions)) as feed:
            # The feed may know more of them than the metadata that the subscription began with.
            await found.add(feed.partitions)
            yield []
            async with aclosing(_in_feed(found, feed, feeds.room)) as parts:
                async for part in parts:
                    yield part
            feed.check()
            if not feed.has_grown:
                return
        await found.grow()
        check_partitions(found.view, found.query)


async def _in_feed(found: Subscription, feed: Feed, room: Room) -> AsyncGenerator[Part]:
    async for part in _wait_for(feed, found):
        yield part
    while not feed.is_stopped:
        number, target = feed.end, dict(feed.cursor.positions)
        async for part in _catch_up(found, feed, target, room):
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


async def _wait_for(feed: Feed, found: Subscription) -> AsyncGenerator[Part]:
    """Until the feed is not behind a position: its messages would come twice, its cursors would go back.

    Positions that it does not reach are moved back if the log ends before them: it was truncated. Otherwise
    the feed is late.
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + BEHIND_S
    # One that was stopped while it started has no positions.
    while not feed.is_stopped:
        behind = [each for each, at in found.positions.items() if feed.cursor.positions[each.partition] < at]
        if not behind:
            return
        if (left_s := deadline_s - loop.time()) > 0:
            await feed.changed(left_s)
            continue
        if await _is_same_topic(found):
            await into_range(found, behind)
        deadline_s = loop.time() + BEHIND_S
        yield _taken_gaps(found)


def _taken_gaps(found: Subscription) -> Part:
    gaps: Part = [*found.gaps]
    found.gaps.clear()
    return gaps


async def _catch_up(
    found: Subscription, feed: Feed, target: dict[int, int], room: Room
) -> AsyncGenerator[Part]:
    """Read up to positions of the feed, exactly."""
    cursor = found.cursor()
    pending = list(found.positions)
    while not feed.is_stopped:
        pending = [each for each in pending if found.positions[each] < target[each.partition]]
        if not pending:
            return
        fetched = await fetch(found, pending, CATCH_UP_SIZES)
        if fetched is None:
            cursor = found.cursor()
        if not await _is_same_topic(found):
            # It was created again, which ends the feed soon, or a broker lags behind.
            await asyncio.sleep(OTHER_TOPIC_S)
            continue
        if found.gaps:
            yield _taken_gaps(found)
        if fetched is None:
            continue
        try:
            for each in fetched:
                async for part in _parts(found, each, target[each.chunk.partition.partition], cursor, room):
                    yield part
        except NoRoom:
            # What was not read is fetched again.
            await asyncio.sleep(ROOM_PAUSE_S)
        # Another one is first, of which a broker returns a batch of any size.
        pending = pending[1:] + pending[:1]


async def _is_same_topic(found: Subscription) -> bool:
    """Was what was fetched last, by name, of the topic that the subscription began with?"""
    view = await find_topic(found.cluster, found.view.name, max_age_s=0.0)
    return view.topic_id == found.view.topic_id


async def _parts(
    found: Subscription, fetched: Fetched, end: int, cursor: Cursor, room: Room
) -> AsyncGenerator[Part]:
    """The messages of a partition before an offset."""
    partition = fetched.chunk.partition
    part: Part = []
    size_bytes = 0
    turns = Turns()
    refusal: NoRoom | None = None
    try:
        for message in fetched.chunk.messages(room):
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
            elif turns.is_over(message):
                await asyncio.sleep(0)
    except NoRoom as error:
        refusal = error
    # The cursor is behind these: a message that follows would skip them.
    if part:
        yield part
    if refusal is not None:
        raise refusal
    found.positions[partition] = min(fetched.chunk.next_offset, end)
