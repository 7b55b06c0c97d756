"""The progress of a restore, stored in record headers with the original position of each record.

The headers give both the progress of a restore and the new offset of an original offset: records of a
partition keep their order, so original offsets increase with new ones.
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
"""The first restore header: a record that was restored twice has two sets."""
UNTIL = "runnel.restore.until"
"""Only if the restore has a limit."""

WINDOW_OFFSETS = 500
"""Initial window for finding the last restored record."""
PEEK_BYTES = 64 * 1024
STABLE_TIMEOUT_S = 60.0
"""How long to wait for open transactions of other producers."""
POLL_S = 0.1


@dataclass(slots=True)
class Origin:
    """The original offset of a restored record, and the limit of its restore."""

    offset: int
    until: str | None


@dataclass(slots=True)
class RestoreState:
    """The progress of a restore in one partition."""

    has_records: bool
    last_offset: int | None
    """The highest original offset restored; None if there is none."""
    until: str | None = None
    """The limit of the restore, in the form of `limit`; None if there is none."""


def limit(partition: int, until_ms: int | None, until_offsets: Mapping[int, int]) -> str | None:
    """The limit of a partition as a comparable string; None if there is none."""
    words = [] if until_ms is None else [f"@{until_ms}"]
    if partition in until_offsets:
        words.append(f"{partition}:{until_offsets[partition]}")
    return " ".join(words) or None


def origin(headers: Headers, topic: str) -> Origin | None:
    """The origin of a record restored from that topic, else None."""
    found: dict[str, bytes | None] = {}
    for name, value in headers:
        # Use the last set of headers: a record may have been restored more than once.
        if name == TOPIC:
            found.clear()
        if name in (TOPIC, OFFSET, UNTIL):
            found[name] = value
    text, until = found.get(OFFSET), found.get(UNTIL)
    if found.get(TOPIC) != topic.encode() or text is None or not text.isdigit():
        return None
    return Origin(int(text), None if until is None else until.decode("utf-8", "replace"))


async def await_stable_end(cluster: Cluster, partition: TopicPartition) -> int:
    """The end offset of a partition, once no transaction is open before it.

    read_committed consumers see nothing from the first open transaction on.
    """
    written = (await end_offsets(cluster, [partition]))[partition]
    deadline_s = asyncio.get_running_loop().time() + STABLE_TIMEOUT_S
    while (end := await last_stable_offset(cluster, partition)) < written:
        if asyncio.get_running_loop().time() >= deadline_s:
            raise TargetInUse(
                f"a transaction has been open in {partition} for {STABLE_TIMEOUT_S:g} seconds and blocks "
                "reads after it: see `runnel txn list`, end it or wait for it, and run this again"
            )
        await asyncio.sleep(POLL_S)
    return end


async def last_stable_offset(cluster: Cluster, partition: TopicPartition) -> int:
    """The last stable offset of a partition."""
    return (await end_offsets(cluster, [partition], isolation=READ_COMMITTED))[partition]


async def find_restore_state(
    cluster: Cluster, partition: TopicPartition, topic: str, end: int
) -> RestoreState:
    """Find the last records restored from `topic`, backwards from `end`."""
    first = (await start_offsets(cluster, [partition]))[partition]
    has_records, window = False, WINDOW_OFFSETS
    while end > first:
        begin = max(first, end - window)
        last: Origin | None = None
        async for message in _messages(cluster, partition, begin, end):
            has_records = True
            found = origin(message.headers, topic)
            # The highest, not the last: copies of restored records may have these headers as well.
            if found is not None and (last is None or found.offset > last.offset):
                last = found
        if last is not None:
            return RestoreState(True, last.offset, last.until)
        end, window = begin, window * 4
    return RestoreState(has_records, None)


async def visible_restore_state(cluster: Cluster, partition: TopicPartition, topic: str) -> RestoreState:
    """The progress as far as it is visible before the first open transaction."""
    end = await last_stable_offset(cluster, partition)
    state = await find_restore_state(cluster, partition, topic, end)
    is_blocked = end < (await end_offsets(cluster, [partition]))[partition]
    return RestoreState(False, None) if is_blocked and state.last_offset is None else state


async def translate(cluster: Cluster, partition: TopicPartition, topic: str, committed: int) -> int:
    """The new offset of the first record at or after the original offset `committed`, or the end offset."""
    end = await await_stable_end(cluster, partition)
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
