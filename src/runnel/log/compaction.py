"""Compaction: which logs are due, and up to which offset. No I/O.

A log has a clean part (each key at most once, as of the last pass) followed by a dirty one:

    log start ─── clean ─── first dirty offset ─── dirty ─── uncleanable (young, open, active segment)

A pass maps every key of the dirty part to its last offset, as far as memory allows, and then rewrites all
segments below the end of that map, without records that have a later one. Offsets never change. A tombstone
is retained for `delete.retention.ms` after the first pass that read it (KIP-534).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

from runnel.log.rolling import RELATIVE_OFFSET_MAX
from runnel.model.log_config import FOREVER, LogConfig

RAW_KEY_BYTES_MAX = 19
DIGEST_BYTES = 20
"""Longer keys are mapped by digest, which is longer than any key mapped as it is, so that none collide."""
ENTRY_BYTES = 200
"""Memory of a key at worst: the bytes object, the integer, and its slot in a dict that just grew."""
KEY_MEMORY_BYTES = 128 * 1024 * 1024
"""Kafka's log.cleaner.dedupe.buffer.size."""
SHARDS = 512
"""Number of dicts, so that each has a few thousand keys and is resized or freed in 0.1 ms."""


@dataclass(slots=True)
class SegmentFacts:
    """The facts about a closed segment for planning."""

    base_offset: int
    end_offset: int
    """The base offset of the next segment; the last batches of this one may have been removed."""
    size_bytes: int
    first_timestamp: int
    max_timestamp: int


@dataclass(slots=True)
class CompactionPlan:
    """A log that is due for compaction: its dirty range and its priority."""

    first_dirty_offset: int
    end_offset: int
    dirty_ratio: float
    is_overdue: bool
    """Has a record exceeded max.compaction.lag.ms?"""

    @property
    def urgency(self) -> tuple[bool, float]:
        return self.is_overdue, self.dirty_ratio


def plan_compaction(
    closed: list[SegmentFacts], first_dirty_offset: int, stable_offset: int, config: LogConfig, now_ms: int
) -> CompactionPlan | None:
    """What may be compacted now, or None if it is not worth it yet.

    `closed` is every segment but the active one; records from `stable_offset` on are not settled yet.
    """
    if not closed or not config.cleanup_compact:
        return None
    first_dirty_offset = max(first_dirty_offset, closed[0].base_offset)
    if first_dirty_offset > closed[-1].end_offset:
        # The log was truncated after the checkpoint: nothing can be assumed clean.
        first_dirty_offset = closed[0].base_offset
    clean_bytes = dirty_bytes = 0
    end_offset = first_dirty_offset
    is_overdue = False
    for segment in closed:
        if segment.end_offset <= first_dirty_offset:
            clean_bytes += segment.size_bytes
            continue
        if segment.end_offset > stable_offset or _is_young(segment, config, now_ms):
            break
        dirty_bytes += segment.size_bytes
        end_offset = segment.end_offset
        if config.max_compaction_lag_ms < FOREVER and segment.first_timestamp >= 0:
            is_overdue |= now_ms - segment.first_timestamp > config.max_compaction_lag_ms
    if dirty_bytes == 0:
        return None
    dirty_ratio = dirty_bytes / (clean_bytes + dirty_bytes)
    if not is_overdue and dirty_ratio <= config.min_cleanable_dirty_ratio:
        return None
    return CompactionPlan(first_dirty_offset, end_offset, dirty_ratio, is_overdue)


def _is_young(segment: SegmentFacts, config: LogConfig, now_ms: int) -> bool:
    return 0 < config.compaction_lag_ms > now_ms - segment.max_timestamp


def group_segments(
    segments: list[SegmentFacts], end_offset: int, config: LogConfig
) -> list[list[SegmentFacts]]:
    """The segments below `end_offset` in runs that fit one segment each: small files are joined.

    Segments are measured before cleaning; what shrinks can be joined further the next time.
    """
    groups: list[list[SegmentFacts]] = []
    size_bytes = 0
    for segment in segments:
        if segment.base_offset >= end_offset:
            break
        group = groups[-1] if groups else []
        fits = (
            bool(group)
            and size_bytes + segment.size_bytes <= config.segment_bytes
            and segment.end_offset - group[0].base_offset <= RELATIVE_OFFSET_MAX
        )
        if fits:
            group.append(segment)
            size_bytes += segment.size_bytes
        else:
            groups.append([segment])
            size_bytes = segment.size_bytes
    return groups


class KeyMap:
    """The last offset of each key, in bounded memory.

    It consists of many small dicts: to grow or to free one large dict would block the event loop.
    """

    __slots__ = ("_count", "_entries_max", "_shards", "end_offset")

    def __init__(self, memory_bytes: int = KEY_MEMORY_BYTES) -> None:
        self._shards: list[dict[bytes, int]] = [{} for _ in range(SHARDS)]
        self._count = 0
        self._entries_max = max(memory_bytes // ENTRY_BYTES, 1)
        self.end_offset = 0
        """Exactly the records below this offset are mapped."""

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        """Is the map full? A single batch may exceed the limit, so that large batches are cleaned, too."""
        return self._count >= self._entries_max

    def put(self, key: bytes, offset: int) -> None:
        """The newest record of this key is at `offset`."""
        if len(key) > RAW_KEY_BYTES_MAX:
            key = blake2b(key, digest_size=DIGEST_BYTES).digest()
        shard = self._shards[hash(key) % SHARDS]
        if key not in shard:
            self._count += 1
        shard[key] = offset

    def is_latest(self, key: bytes, offset: int) -> bool:
        """Is this the last mapped record of the key?"""
        if len(key) > RAW_KEY_BYTES_MAX:
            key = blake2b(key, digest_size=DIGEST_BYTES).digest()
        return offset >= self._shards[hash(key) % SHARDS].get(key, -1)

    def forget(self) -> Iterator[None]:
        """Free the memory, in steps."""
        while self._shards:
            self._shards.pop().clear()
            yield
