"""Reads parts of a topic: the newest messages, those from a position on, or all of them backwards."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field

from runnel.client.chunk import Chunk, Message
from runnel.client.cluster import Cluster
from runnel.client.errors import ClientError
from runnel.client.fetching import FetchSizes, fetch_once
from runnel.client.offsets import READ_UNCOMMITTED
from runnel.gateway.turns import Turns, new_room, size_of
from runnel.model.ids import TopicPartition

SIZES = FetchSizes(request_bytes=4 * 1024 * 1024, partition_bytes=512 * 1024)
READ_BYTES_MAX = 16 * 1024 * 1024
"""Bytes that are fetched before it is looked at what they are."""

PAGE_BYTES_MAX = 64 * 1024 * 1024
"""Bytes that are fetched to show one page."""

HELD_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of the messages of a read, decompressed."""

ROUNDS_MAX = 40

SCAN_OFFSETS = 2000
SCAN_PARTITIONS = 16
"""A search reads this many offsets of this many partitions at a time."""

Positions = dict[TopicPartition, int]


@dataclass(slots=True)
class Source:
    """Fetches ranges of offsets; counts what it fetched."""

    cluster: Cluster
    isolation: int = READ_UNCOMMITTED
    bytes_read: int = 0
    unread: set[TopicPartition] = field(default_factory=set)
    """The partitions whose ranges the last read did not complete, as there were too many bytes."""
    bytes_kept: int = 0
    """What all messages take that were read."""
    _left_bytes: int = 0

    @property
    def is_page_full(self) -> bool:
        """Was enough read for one page, whatever it was?"""
        return max(self.bytes_read, self.bytes_kept) > PAGE_BYTES_MAX

    async def read(
        self, ranges: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, list[Message]]:
        """The messages of ranges (first, after), in order; those of `unread` have more."""
        found: dict[TopicPartition, list[Message]] = {partition: [] for partition in ranges}
        positions = {partition: first for partition, (first, after) in ranges.items() if first < after}
        bytes_max = self.bytes_read + READ_BYTES_MAX
        self._left_bytes = HELD_BYTES_MAX
        while positions and self.bytes_read < bytes_max and self._left_bytes > 0:
            for chunk in await self._fetch(positions):
                after = ranges[chunk.partition][1]
                next_offset = await self._collect(chunk, after, found[chunk.partition])
                positions[chunk.partition] = next_offset
                if next_offset >= after or chunk.next_offset == chunk.from_offset:
                    del positions[chunk.partition]
        self.unread = set(positions)
        return found

    async def _collect(self, chunk: Chunk, after: int, messages: list[Message]) -> int:
        """Add the messages of a chunk, as far as there is room; returns where to go on."""
        turns = Turns()
        position = chunk.from_offset
        if self._left_bytes <= 0:
            return position
        for message in chunk.messages(new_room()):
            if message.offset >= after:
                break
            messages.append(message)
            position = message.offset + 1
            self.bytes_kept += size_of(message)
            self._left_bytes -= size_of(message)
            if self._left_bytes <= 0:
                return position
            if turns.is_over(message):
                await asyncio.sleep(0)
        return chunk.next_offset

    async def _fetch(self, positions: Positions) -> list[Chunk]:
        """One request to each leader."""
        fetched = await fetch_once(self.cluster, positions, isolation=self.isolation, sizes=SIZES)
        self.bytes_read += sum(len(each.chunk.records) for each in fetched)
        # A partition without progress that is not at its end did not fit, and is asked again.
        return [
            each.chunk
            for each in fetched
            if each.chunk.next_offset > each.chunk.from_offset or not each.has_more
        ]


@dataclass(slots=True)
class Slice:
    """Messages of a page, and where the next page begins."""

    messages: list[Message]
    cursor: Positions = field(default_factory=dict)
    has_more: bool = False


async def newest(source: Source, low: Positions, high: Positions, limit: int) -> Slice:
    """The newest messages below `high`, over all partitions by timestamp; the cursor is the next `high`."""
    floor = dict(high)
    width = dict.fromkeys(high, max(16, 2 * limit // max(len(high), 1)))
    buffers: dict[TopicPartition, list[Message]] = {partition: [] for partition in high}
    picked: list[Message] = []
    cursor = dict(high)
    for _ in range(ROUNDS_MAX):
        while len(picked) < limit and all(buffers[each] or floor[each] <= low[each] for each in high):
            filled = [partition for partition in high if buffers[partition]]
            if not filled:
                break
            latest = max(filled, key=lambda each: (buffers[each][-1].timestamp_ms, each))
            picked.append(buffers[latest].pop())
            cursor[latest] = picked[-1].offset
        need = {
            each: (max(low[each], floor[each] - width[each]), floor[each])
            for each in high
            if not buffers[each] and floor[each] > low[each]
        }
        if len(picked) >= limit or not need or source.is_page_full:
            break
        found = await source.read(need)
        for partition, (first, _after) in need.items():
            if partition in source.unread:
                # Its newest messages are missing: less at a time.
                width[partition] = max(1, width[partition] // 8)
                continue
            buffers[partition] = found[partition]
            floor[partition] = first
            width[partition] *= 4
            if not found[partition]:
                cursor[partition] = first
    has_more = any(cursor[each] > low[each] for each in high)
    return Slice(picked, cursor, has_more)


async def onwards(source: Source, first: Positions, ends: Positions, limit: int) -> Slice:
    """The messages from positions on, over all partitions by timestamp; the cursor is the next `first`."""
    position = dict(first)
    width = max(16, 2 * limit // max(len(first), 1))
    buffers: dict[TopicPartition, list[Message]] = {partition: [] for partition in first}
    picked: list[Message] = []
    cursor = dict(first)
    for _ in range(ROUNDS_MAX):
        while len(picked) < limit and all(buffers[each] or position[each] >= ends[each] for each in first):
            filled = [partition for partition in first if buffers[partition]]
            if not filled:
                break
            earliest = min(filled, key=lambda each: (buffers[each][0].timestamp_ms, each))
            picked.append(buffers[earliest].pop(0))
            cursor[earliest] = picked[-1].offset + 1
        need = {
            each: (position[each], min(ends[each], position[each] + width))
            for each in first
            if not buffers[each] and position[each] < ends[each]
        }
        if len(picked) >= limit or not need or source.is_page_full:
            break
        width *= 2
        found = await source.read(need)
        for partition, (_first, after) in need.items():
            buffers[partition] = found[partition]
            if partition not in source.unread:
                position[partition] = after
            elif found[partition]:
                position[partition] = found[partition][-1].offset + 1
            if not found[partition]:
                cursor[partition] = position[partition]
    has_more = any(cursor[each] < ends[each] for each in first)
    return Slice(picked, cursor, has_more)


@dataclass(slots=True)
class Scanned:
    """A step of a search: what matched, newest first, and how far it is."""

    matches: list[Message]
    offsets_done: int
    offsets_total: int
    cursor: Positions


async def scan(
    source: Source, low: Positions, high: Positions, matches: Callable[[Message], bool]
) -> AsyncIterator[Scanned]:
    """Search backwards through whole partitions, in steps."""
    total = sum(max(high[each] - low[each], 0) for each in high)
    cursor = dict(high)
    steps = dict.fromkeys(high, SCAN_OFFSETS)
    most = dict(steps)
    while any(cursor[each] > low[each] for each in high):
        behind = sorted(
            (each for each in high if cursor[each] > low[each]), key=lambda each: low[each] - cursor[each]
        )
        ranges = {
            each: (max(low[each], cursor[each] - steps[each]), cursor[each])
            for each in behind[:SCAN_PARTITIONS]
        }
        found = await source.read(ranges)
        matched: list[Message] = []
        for partition, messages in found.items():
            if partition in source.unread:
                # Large messages: the newest ones are missing. They are read with fewer at a time, and in the
                # end when those of other partitions, which are ahead then, do not take the room.
                most[partition] = max(1, steps[partition] // 2)
                steps[partition] = max(1, steps[partition] // SCAN_PARTITIONS)
                continue
            steps[partition] = min(2 * steps[partition], most[partition])
            cursor[partition] = ranges[partition][0]
            matched += await matching(messages, matches)
        matched.sort(key=lambda message: (-message.timestamp_ms, message.partition, -message.offset))
        done = total - sum(max(cursor[each] - low[each], 0) for each in high)
        yield Scanned(matched, done, total, dict(cursor))


async def matching(messages: Iterable[Message], matches: Callable[[Message], bool]) -> list[Message]:
    """Those that match, looked at in turns, in a thread: a filter may have many terms."""
    matched: list[Message] = []
    part: list[Message] = []
    turns = Turns()
    for message in messages:
        part.append(message)
        if turns.is_over(message):
            matched += await asyncio.to_thread(_matching, part, matches)
            part = []
    return matched + await asyncio.to_thread(_matching, part, matches)


def _matching(messages: Iterable[Message], matches: Callable[[Message], bool]) -> list[Message]:
    return [message for message in messages if matches(message)]


def cursor_text(positions: Positions) -> str:
    """Positions of the partitions of one topic, for an address."""
    return ",".join(f"{partition.partition}:{offset}" for partition, offset in sorted(positions.items()))


def read_cursor(text: str, topic: str) -> Positions:
    """Positions from an address; those that are malformed are left out."""
    found: Positions = {}
    for part in text.split(","):
        number, _, offset = part.partition(":")
        if number.isdecimal() and offset.isdecimal() and len(offset) < 20 and len(number) < 10:
            found[TopicPartition(topic, int(number))] = int(offset)
    return found


async def read_one(source: Source, partition: TopicPartition, offset: int) -> Message | None:
    """The message at an offset; None if there is none."""
    try:
        found = await source.read({partition: (offset, offset + 1)})
    except ClientError:
        return None
    return next((message for message in found[partition] if message.offset == offset), None)
