"""Feeds: the end of a topic, read once and encoded once for all streams that follow it.

    partitions ── one reader ──► ring of messages, each with the cursor after it ──► streams

A stream is a number in the ring. One that begins elsewhere, or falls out of the ring, reads by itself up to a
message of the ring, and goes on from there. All streams of a feed see its messages in the same order, so that
the cursor after a message is the same for all of them, too.

Metadata say what became of the topic. One that was created again ends its feeds with an error: their cursors
and the ids of their messages have no meaning in it. Partitions that were added end them, too; their streams
go on in a feed of all partitions.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import msgspec

from runnel.client.chunk import Message as KafkaMessage
from runnel.client.cluster import Cluster
from runnel.client.errors import BrokerError, ClientError
from runnel.client.offsets import end_offsets
from runnel.client.reader import Reader
from runnel.gateway.http.limits import (
    FEED_IDLE_S,
    FEED_METADATA_S,
    FEEDS_MAX,
    RING_BYTES_MAX,
    RING_MESSAGES_MAX,
)
from runnel.gateway.http.message_ids import RECREATED, Cursor
from runnel.gateway.http.problems import Problem
from runnel.gateway.http.records import View
from runnel.gateway.turns import STREAMS_BYTES_MAX, Turns, new_room
from runnel.model.errors import ErrorCode
from runnel.model.ids import TopicPartition

log = logging.getLogger("runnel.gateway")

READER_BYTES = 1024 * 1024
READER_PARTITION_BYTES = 256 * 1024
ENTRY_BYTES = 300
"""An entry and its parts as objects, without their content."""


class RecordsDeleted(ClientError):
    """A feed has ended, because its next record is not in the log: it was deleted, or the log truncated."""

    retriable = True


class FeedKey(NamedTuple):
    """What streams of a feed have in common."""

    topic: str
    partition: int | None
    isolation: int
    shown: View


@dataclass(slots=True, weakref_slot=True)
class Entry:
    """A message, encoded for every kind of stream when the first one needs it."""

    partition: int
    offset: int
    data: bytes
    """The message as JSON."""
    cursor: str
    """The position after it, in all partitions."""
    _event: bytes = b""
    _frame: str = ""

    @property
    def size_bytes(self) -> int:
        """What it takes once it was encoded for all kinds of streams."""
        return 3 * (len(self.data) + len(self.cursor)) + ENTRY_BYTES

    @property
    def event(self) -> bytes:
        """As an event of SSE."""
        if not self._event:
            self._event = b"id: %b\ndata: %b\n\n" % (self.cursor.encode(), self.data)
        return self._event

    @property
    def frame(self) -> str:
        """As a message of a WebSocket."""
        if not self._frame:
            head = f'{{"type":"message","cursor":"{self.cursor}",'
            self._frame = head + self.data[1:].decode()
        return self._frame


def entry_of(message: KafkaMessage, shown: View, cursor: Cursor) -> Entry:
    """Encode a message; moves the cursor behind it."""
    cursor.advance(message.partition, message.offset + 1)
    data = msgspec.json.encode(shown.of(message))
    return Entry(message.partition, message.offset, data, cursor.text())


class Feed:
    """One topic, or a partition of it, from now on."""

    def __init__(self, cluster: Cluster, key: FeedKey, partitions: Sequence[TopicPartition]) -> None:
        self._cluster = cluster
        self.key = key
        self.partitions = frozenset(partitions)
        self.cursor = Cursor(key.shown.topic_id, {})
        self._ring: deque[Entry] = deque()
        self._first = 0
        self._size_bytes = 0
        self._waiters: set[asyncio.Future[None]] = set()
        self.is_stopped = False
        self.has_grown = False
        """It was stopped because the topic has more partitions."""
        self.error: ClientError | Problem | None = None
        self._other_id: bytes | None = None
        self.followers = 0
        self.idle_since_s = 0.0
        self._task: asyncio.Task[None] | None = None

    @property
    def end(self) -> int:
        """The number of the next message."""
        return self._first + len(self._ring)

    @cached_property
    def _ready(self) -> asyncio.Event:
        return asyncio.Event()

    async def start(self) -> None:
        """Begin at the end of the partitions; on return it is known where that is."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        await self._ready.wait()
        self.check()

    def check(self) -> None:
        """Raise the error that has ended it."""
        if self.error is not None:
            raise self.error

    def has(self, number: int) -> bool:
        """Is a message, or the next one, in the ring?"""
        return self._first <= number

    def entries(self, number: int, bytes_max: int) -> list[Entry]:
        """Messages from a number on, up to a size."""
        found: list[Entry] = []
        size_bytes = 0
        ring, index = self._ring, number - self._first
        while index < len(ring) and (not found or size_bytes < bytes_max):
            found.append(ring[index])
            size_bytes += len(ring[index].data)
            index += 1
        return found

    def is_beyond(self, positions: Mapping[TopicPartition, int]) -> bool:
        """Has it read past one of these positions?"""
        mine = self.cursor.positions
        return any(mine.get(each.partition, 0) > position for each, position in positions.items())

    async def changed(self, timeout_s: float) -> bool:
        """Wait for the next messages; False if none came in time."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            done, _ = await asyncio.wait((waiter,), timeout=timeout_s)
        finally:
            self._waiters.discard(waiter)
        self.check()
        return bool(done)

    def stop(self) -> None:
        """End all that follow it."""
        self.is_stopped = True
        self._wake()

    def grow(self) -> None:
        """Partitions were added: all that follow it continue in another feed."""
        self.has_grown = True
        self.stop()

    def compare(self, topic_id: bytes, partition_count: int) -> None:
        """Metadata have this topic by the same name."""
        if topic_id == self.key.shown.topic_id:
            self._other_id = None
            if self.key.partition is None and partition_count > len(self.partitions):
                self.grow()
        elif topic_id == self._other_id:
            # The second time: a broker that lags behind has the topic before this one for a moment.
            self.error = self.error or Problem(409, RECREATED)
            self.stop()
        else:
            self._other_id = topic_id

    async def close(self) -> None:
        """Stop reading."""
        self.stop()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # Reading.

    async def _run(self) -> None:
        reader = Reader(
            self._cluster,
            isolation=self.key.isolation,
            max_bytes=READER_BYTES,
            partition_max_bytes=READER_PARTITION_BYTES,
            # It ends: a stream that resumes reports what was deleted, and reads what was not.
            out_of_range=None,
            # Offsets of a topic that was created again may well be in range.
            topic_ids={self.key.topic: self.key.shown.topic_id},
        )
        try:
            async with reader:
                ends = await end_offsets(self._cluster, self.partitions, isolation=self.key.isolation)
                for partition, end in sorted(ends.items()):
                    self.cursor.advance(partition.partition, end)
                await reader.assign(ends)
                self._ready.set()
                while (chunk := await reader.next_chunk()) is not None:
                    turns = Turns()
                    for message in chunk.messages(new_room()):
                        self._append(entry_of(message, self.key.shown, self.cursor))
                        if turns.is_over(message):
                            self._wake()
                            await asyncio.sleep(0)
                    reader.consumed(chunk)
                    self.cursor.advance(chunk.partition.partition, chunk.next_offset)
                    self._wake()
        except ClientError as error:
            is_lost = isinstance(error, BrokerError) and error.error is ErrorCode.OFFSET_OUT_OF_RANGE
            found = RecordsDeleted(f"resume at the last cursor: {error}") if is_lost else error
            self.error = self.error or found
        finally:
            self.is_stopped = True
            self._ready.set()
            self._wake()

    def _append(self, entry: Entry) -> None:
        self._ring.append(entry)
        self._size_bytes += entry.size_bytes
        while self._size_bytes > RING_BYTES_MAX or len(self._ring) > RING_MESSAGES_MAX:
            if len(self._ring) == 1:
                break
            self._size_bytes -= self._ring.popleft().size_bytes
            self._first += 1

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class Feeds:
    """The feeds of a principal."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._feeds: dict[FeedKey, Feed] = {}
        self._reaper: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._is_stopped = False
        self.room = new_room(STREAMS_BYTES_MAX)
        """What all streams that catch up have for batches: each may be sent slowly."""
        self.streams = 0
        """Open streams."""

    @asynccontextmanager
    async def follow(self, key: FeedKey, partitions: Sequence[TopicPartition]) -> AsyncIterator[Feed]:
        """The feed for streams of a kind, which runs at least until the end of the block."""
        feed = before = self._feeds.get(key)
        if self._is_stopped:
            raise Problem(503, "this gateway stops")
        if before is not None and not before.is_stopped and not before.partitions.issuperset(partitions):
            before.grow()
        if feed is None or feed.is_stopped:
            if before is None and len(self._feeds) >= FEEDS_MAX:
                raise Problem(503, "too many topics are followed at the same time")
            feed = self._feeds[key] = Feed(self._cluster, key, partitions)
        feed.followers += 1
        if self._watcher is None:
            self._watcher = asyncio.create_task(self._watch())
        try:
            if before is not None and before is not feed:
                await before.close()
            await feed.start()
            yield feed
        finally:
            feed.followers -= 1
            feed.idle_since_s = asyncio.get_running_loop().time()
            if self._reaper is None:
                self._reaper = asyncio.create_task(self._reap())

    def stop(self) -> None:
        """End all streams; no more begin."""
        self._is_stopped = True
        for feed in self._feeds.values():
            feed.stop()

    async def close(self) -> None:
        """Stop all feeds."""
        tasks = [task for task in (self._reaper, self._watcher) if task is not None]
        for task in tasks:
            task.cancel()
        closing = [feed.close() for feed in self._feeds.values()]
        await asyncio.gather(*tasks, *closing, return_exceptions=True)
        self._feeds.clear()

    async def _watch(self) -> None:
        """Compare feeds with metadata."""
        try:
            while self._feeds:
                await asyncio.sleep(FEED_METADATA_S)
                try:
                    await self._compare()
                except ClientError:
                    # Readers report what lasts.
                    continue
                except Exception:
                    # A bug; streams of other topics must not miss what becomes of them.
                    log.exception("the topics of streams were not compared with metadata")
        finally:
            self._watcher = None

    async def _compare(self) -> None:
        names = {feed.key.topic for feed in self._feeds.values() if not feed.is_stopped}
        topics = (await self._cluster.refresh(sorted(names))).topics if names else []
        known = {topic.name: topic for topic in topics if not topic.error_code}
        for feed in self._feeds.values():
            topic = known.get(feed.key.topic)
            if topic is not None and not feed.is_stopped:
                feed.compare(topic.topic_id, len(topic.partitions))

    async def _reap(self) -> None:
        """Close feeds that are not followed any more."""
        while self._feeds:
            await asyncio.sleep(FEED_IDLE_S / 2)
            now_s = asyncio.get_running_loop().time()
            for key, feed in list(self._feeds.items()):
                if self._feeds.get(key) is not feed:
                    # It was replaced while another one was closed.
                    continue
                if feed.followers == 0 and (feed.is_stopped or now_s - feed.idle_since_s > FEED_IDLE_S):
                    del self._feeds[key]
                    await feed.close()
        self._reaper = None
