"""The trail that a restore leaves in a topic: headers that say where each record stood before.

Both how far a restore has come and where an old offset is now can be told from them: the records of a
partition keep their order, so that old offsets ascend with new ones.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from runnel.batch.records import Headers
from runnel.client.chunk import Message
from runnel.client.cluster import Cluster
from runnel.client.offsets import READ_COMMITTED, end_offsets, start_offsets
from runnel.client.reader import Reader
from runnel.model.ids import TopicPartition

OFFSET = "runnel.restore.offset"
TIMESTAMP = "runnel.restore.timestamp"
PARTITION = "runnel.restore.partition"
TOPIC = "runnel.restore.topic"

WINDOW_OFFSETS = 500
"""How far before the end the last restored record is looked for first."""
PEEK_BYTES = 64 * 1024


@dataclass(slots=True)
class Trail:
    """How far a topic's partition has been restored."""

    has_records: bool
    last_offset: int | None
    """The old offset of the last record that was restored; None if none was."""


def old_offset(headers: Headers, topic: str) -> int | None:
    """Where a record stood in that topic, or None if it was not restored from it."""
    # The last ones count: a record may have been restored before, from elsewhere.
    found = {name: value for name, value in headers if name in (OFFSET, TOPIC)}
    text = found.get(OFFSET)
    if found.get(TOPIC) != topic.encode() or text is None or not text.isdigit():
        return None
    return int(text)


async def find_trail(cluster: Cluster, partition: TopicPartition, topic: str) -> Trail:
    """Look for the last record that was restored from `topic`, from the end backwards."""
    first = (await start_offsets(cluster, [partition]))[partition]
    end = (await end_offsets(cluster, [partition], isolation=READ_COMMITTED))[partition]
    has_records, window = False, WINDOW_OFFSETS
    while end > first:
        begin = max(first, end - window)
        last: int | None = None
        async for message in _messages(cluster, partition, begin, end):
            has_records = True
            found = old_offset(message.headers, topic)
            last = last if found is None else found
        if last is not None:
            return Trail(True, last)
        end, window = begin, window * 4
    return Trail(has_records, None)


async def translate(cluster: Cluster, partition: TopicPartition, topic: str, committed: int) -> int:
    """The new offset of the first record restored from `committed` or after it, or the partition's end."""
    low = (await start_offsets(cluster, [partition]))[partition]
    end = (await end_offsets(cluster, [partition], isolation=READ_COMMITTED))[partition]
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
        found = old_offset(message.headers, topic)
        if found is not None:
            return message.offset, found
    return None


async def _messages(
    cluster: Cluster, partition: TopicPartition, begin: int, end: int, max_bytes: int = 1024 * 1024
) -> AsyncIterator[Message]:
    async with Reader(cluster, isolation=READ_COMMITTED, partition_max_bytes=max_bytes) as reader:
        await reader.assign({partition: begin})
        async for message in reader.messages(until={partition: end}):
            yield message
