"""The producers of one log, loaded from its snapshots and batches when they are first needed."""

from collections.abc import Callable

from runnel.batch.errors import CorruptBatch
from runnel.disk.producers_on_disk import load_producers, read_snapshot
from runnel.disk.segments import Segments
from runnel.log.producers import Producers
from runnel.model.errors import StorageFailed

_WALKED_BYTES_MAX = 64 * 1024
"""A segment larger than this gets a producer snapshot at its end also when there are no producers."""


class ProducerState:
    """Sequences and transactions of the producers, and how far ends of transactions are committed."""

    __slots__ = ("_now_ms", "_segments", "high_watermark", "loaded", "snapshot_offset")

    def __init__(self, segments: Segments, producers: Producers | None, now_ms: Callable[[], int]) -> None:
        self._segments = segments
        self._now_ms = now_ms
        self.loaded = producers
        """None until they are needed after a clean start."""
        self.high_watermark = segments.log_start_offset
        """Ends of transactions below are final. Advanced by the owner of the log only."""
        self.snapshot_offset = -1
        """Offset of the snapshot at the end of the last clean run, which no segment is named after."""

    def get(self) -> Producers:
        """The producers. Raises StorageFailed if they cannot be loaded."""
        if self.loaded is None:
            try:
                self.loaded = self._load()
            except (OSError, CorruptBatch) as error:
                raise StorageFailed(f"{self._segments.folder}: {error}") from error
        return self.loaded

    def _load(self) -> Producers:
        # No producer has written since the snapshot of the clean shutdown, or they would be loaded.
        producers = read_snapshot(self._segments, self.snapshot_offset)
        if producers is None:
            producers, _ = load_producers(
                self._segments, self._segments.written_offset, self._now_ms(), self.high_watermark
            )
        return producers

    @property
    def last_stable_offset(self) -> int:
        """Everything below is committed and belongs to no transaction that could still be aborted."""
        high_watermark = self.high_watermark
        unstable_offset = self.get().first_unstable_offset(high_watermark)
        if unstable_offset is None:
            return high_watermark
        return min(max(unstable_offset, self._segments.log_start_offset), high_watermark)

    def advance_high_watermark(self, offset: int) -> None:
        """Everything below `offset` is committed."""
        if offset > self.high_watermark:
            self.high_watermark = min(offset, self._segments.written_offset)
            if self.loaded is not None:
                self.loaded.forget_ended(self.high_watermark)

    def truncated(self, end_offset: int) -> None:
        """The log ends here now: load the producers as they were then. May raise OSError and CorruptBatch."""
        self.high_watermark = min(self.high_watermark, end_offset)
        self.snapshot_offset = -1
        self.loaded, _ = load_producers(self._segments, end_offset, self._now_ms(), self.high_watermark)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers that have not written for so long."""
        if self.loaded is not None:
            self.loaded.expire(now_ms, expiration_ms)

    @property
    def needs_snapshot(self) -> bool:
        """Is a snapshot missing at the end of the log, without which a start would have to walk it?"""
        if self.snapshot_offset == self._segments.written_offset:
            return False
        if self._segments.active.size_bytes > _WALKED_BYTES_MAX:
            return True
        return self.loaded is None or len(self.loaded) > 0

    def closed(self) -> None:
        """A snapshot was written at the end of the log, if one was needed."""
        if self.needs_snapshot:
            self.snapshot_offset = self._segments.written_offset
