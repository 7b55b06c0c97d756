"""The trail that a restore leaves in a topic: headers that say where each record stood before.

Both how far a restore has come and where an old offset is now follow from them: the records of a
partition keep their order, so that old offsets ascend with new ones.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from runnel.batch.records import Headers
from runnel.client.chunk import Message
from runnel.client.cluster import Cluster
from runnel.client.offsets import READ_COMMITTED, end_offsets, start_offsets
from runnel.client.reader import Reader
from runnel.model.ids import TopicPartition
from runnel.pipelines.errors import TargetInUse

OFFSET = "runnel.restore.offset"
TIMESTAMP = "runnel.restore.timestamp"
PARTITION = "runnel.restore.partition"
TOPIC = "runnel.restore.topic"
"""The first one of a trail: a record that was restored twice has two."""
UNTIL = "runnel.restore.until"
"""Only where not all of a partition was asked for."""

WINDOW_OFFSETS = 500
"""How far before the end the last restored record is looked for first."""
PEEK_BYTES = 64 * 1024
SETTLE_S = 60.0
"""How long transactions of others are waited for: theirs may stay open for fifteen minutes and more."""
SETTLE_PAUSE_S = 0.1


@dataclass(slots=True)
class Origin:
    """Where a restored record stood, and up to where its partition was being restored."""

    offset: int
    until: str | None


@dataclass(slots=True)
class Trail:
    """How far a topic's partition has been restored."""

    has_records: bool
    last_offset: int | None
    """The highest old offset that was restored; None if none was."""
    until: str | None = None
    """Up to where it was being restored, as `limit` says it; None for all of it."""


def limit(partition: int, until_ms: int | None, until_offsets: Mapping[int, int]) -> str | None:
    """Up to where a partition is restored, in words that can be compared; None for all of it."""
    words = [] if until_ms is None else [f"@{until_ms}"]
    if partition in until_offsets:
        words.append(f"{partition}:{until_offsets[partition]}")
    return " ".join(words) or None


def origin(headers: Headers, topic: str) -> Origin | None:
    """Where a record stood in that topic, or None if it was not restored from it."""
    found: dict[str, bytes | None] = {}
    for name, value in headers:
        # The last trail counts: a record may have been restored before, from elsewhere.
        if name == TOPIC:
            found.clear()
        if name in (TOPIC, OFFSET, UNTIL):
            found[name] = value
    text, until = found.get(OFFSET), found.get(UNTIL)
    if found.get(TOPIC) != topic.encode() or text is None or not text.isdigit():
        return None
    return Origin(int(text), None if until is None else until.decode("utf-8", "replace"))


async def settled_end(cluster: Cluster, partition: TopicPartition) -> int:
    """The end of a partition once no transaction is open before it: nothing hides behind one any more.

    Readers of committed records see nothing from the first open transaction on, be it decided or not.
    """
    written = (await end_offsets(cluster, [partition]))[partition]
    deadline_s = asyncio.get_running_loop().time() + SETTLE_S
    while (end := await visible_end(cluster, partition)) < written:
        if asyncio.get_running_loop().time() >= deadline_s:
            raise TargetInUse(
                f"a transaction has been open in {partition} for {SETTLE_S:g} seconds and hides what comes "
                "after it: see `runnel txn list`, end it or let it end, and run this again"
            )
        await asyncio.sleep(SETTLE_PAUSE_S)
    return end


async def visible_end(cluster: Cluster, partition: TopicPartition) -> int:
    """Where readers of committed records stop now: at the first open transaction, or at the end."""
    return (await end_offsets(cluster, [partition], isolation=READ_COMMITTED))[partition]


async def find_trail(cluster: Cluster, partition: TopicPartition, topic: str, end: int) -> Trail:
    """Look for the last records that were restored from `topic`, from `end` backwards."""
    first = (await start_offsets(cluster, [partition]))[partition]
    has_records, window = False, WINDOW_OFFSETS
    while end > first:
        begin = max(first, end - window)
        last: Origin | None = None
        async for message in _messages(cluster, partition, begin, end):
            has_records = True
            found = origin(message.headers, topic)
            # The highest, not the last: a copy of a restored record may have its headers as well.
            if found is not None and (last is None or found.offset > last.offset):
                last = found
        if last is not None:
            return Trail(True, last.offset, last.until)
        end, window = begin, window * 4
    return Trail(has_records, None)


async def trail_in_sight(cluster: Cluster, partition: TopicPartition, topic: str) -> Trail:
    """The trail as far as it can be seen now: of what a transaction hides, nothing is said."""
    end = await visible_end(cluster, partition)
    trail = await find_trail(cluster, partition, topic, end)
    is_hiding = end < (await end_offsets(cluster, [partition]))[partition]
    return Trail(False, None) if is_hiding and trail.last_offset is None else trail


async def translate(cluster: Cluster, partition: TopicPartition, topic: str, committed: int) -> int:
    """The new offset of the first record restored from `committed` or after it, or the partition's end."""
    end = await settled_end(cluster, partition)
    low = (await start_offsets(cluster, [partition]))[partition]
    high, answer = end, end
    while low < high:
        middle = (low + high) // 2
        found = await _first_restored(cluster, partition, topic, middle, high)
        if found is None:
            high = middle
        elif found[1] >= committed:
            high, answer = middle, found[0]
        else:
            low = found[0] + 1
    return answer


async def _first_restored(
    cluster: Cluster, partition: TopicPartition, topic: str, begin: int, end: int
) -> tuple[int, int] | None:
    """(new offset, old offset) of the first restored record in the range."""
    async for message in _messages(cluster, partition, begin, end, PEEK_BYTES):
        found = origin(message.headers, topic)
        if found is not None:
            return message.offset, found.offset
    return None


async def _messages(
    cluster: Cluster, partition: TopicPartition, begin: int, end: int, max_bytes: int = 1024 * 1024
) -> AsyncIterator[Message]:
    async with Reader(cluster, isolation=READ_COMMITTED, partition_max_bytes=max_bytes) as reader:
        await reader.assign({partition: begin})
        async for message in reader.messages(until={partition: end}):
            yield message
