"""The producer state of one log, loaded from snapshots and batches on first use."""

from collections.abc import Callable

from runnel.batch.errors import CorruptBatch
from runnel.disk.health import nothing
from runnel.disk.producers_on_disk import is_sound_snapshot, load_producers, read_snapshot, snapshot_path
from runnel.disk.segments import Segments
from runnel.log.producers import Producers
from runnel.model.errors import StorageFailed

SNAPSHOT_BYTES_MAX = 64 * 1024
"""A larger producer snapshot is not loaded on the event loop."""
_WALKED_BYTES_MAX = 64 * 1024
"""A segment larger than this gets a producer snapshot at its end also when there are no producers."""


class ProducerState:
    """The producer state, and the offset below which markers are committed."""

    __slots__ = ("_load_soon", "_segments", "high_watermark", "loaded", "snapshot_offset", "steady_ms")

    def __init__(
        self,
        segments: Segments,
        producers: Producers | None,
        steady_ms: Callable[[], int],
        load_soon: Callable[[], None],
    ) -> None:
        self._segments = segments
        self._load_soon = load_soon
        self.steady_ms = steady_ms
        """The time by which producers expire."""
        self.loaded = producers
        """None until first use after a clean start."""
        self.high_watermark = segments.log_start_offset
        """Markers below are committed. Advanced by the owner of the log only."""
        self.snapshot_offset = -1
        """The offset of the snapshot of the last clean shutdown, which is not at the start of a segment."""

    def detach(self) -> None:
        """Drop references to the removed log."""
        self._load_soon = nothing

    def get(self) -> Producers:
        """The producer state. Raises StorageFailed if it cannot be loaded, or is still being loaded."""
        if self.loaded is None:
            try:
                if self._is_small():
                    self.loaded = self.load(self._segments)
                else:
                    self._load_soon()
            except (OSError, CorruptBatch) as error:
                raise StorageFailed(f"{self._segments.folder}: {error}") from error
            if self.loaded is None:
                raise StorageFailed(f"{self._segments.folder}: its producers are being loaded")
        return self.loaded

    def get_blocking(self) -> Producers:
        """Load the producer state, which may block. May raise OSError and CorruptBatch."""
        if self.loaded is None:
            self.loaded = self.load(self._segments)
        return self.loaded

    def load(self, segments: Segments) -> Producers:
        """The producers at the end of these segments, which are ours or a view of all of them."""
        # No producer has written since the snapshot of the clean shutdown, or they would be loaded.
        now_ms = self.steady_ms()
        producers = read_snapshot(segments, self.snapshot_offset, now_ms)
        if producers is None:
            producers, _ = load_producers(segments, segments.written_offset, now_ms, self.high_watermark)
        return producers

    def install(self, producers: Producers) -> None:
        """Install the state loaded by a thread, unless the log has loaded it meanwhile."""
        if self.loaded is None:
            producers.forget_ended(self.high_watermark)
            self.loaded = producers

    def _is_small(self) -> bool:
        """Can the state be loaded on the event loop?"""
        if self._segments.size_bytes <= _WALKED_BYTES_MAX:
            return True
        if self.snapshot_offset < 0:
            return False
        path = snapshot_path(self._segments, self.snapshot_offset)
        files = self._segments.files
        try:
            is_small = files.size_bytes(path) <= SNAPSHOT_BYTES_MAX
            return is_small and is_sound_snapshot(files.read(path))
        except FileNotFoundError:
            return False

    @property
    def last_stable_offset(self) -> int:
        """Records below are committed and in no open transaction."""
        high_watermark = self.high_watermark
        unstable_offset = self.get().first_unstable_offset(high_watermark)
        if unstable_offset is None:
            return high_watermark
        return min(max(unstable_offset, self._segments.log_start_offset), high_watermark)

    def advance_high_watermark(self, offset: int) -> None:
        """The high watermark advanced to `offset`."""
        if offset > self.high_watermark:
            self.high_watermark = min(offset, self._segments.written_offset)
            if self.loaded is not None:
                self.loaded.forget_ended(self.high_watermark)

    def truncated(self, end_offset: int, producers: Producers) -> None:
        """The log ends at this offset now, with these producers."""
        self.high_watermark = min(self.high_watermark, end_offset)
        self.snapshot_offset = -1
        self.loaded = producers

    def expire(self, expiration_ms: int) -> None:
        """Expire idle producers."""
        if self.loaded is not None:
            self.loaded.expire(self.steady_ms(), expiration_ms)

    @property
    def needs_snapshot(self) -> bool:
        """Is a snapshot required at the end of the log, so that a start need not scan it?"""
        if self.snapshot_offset == self._segments.written_offset:
            return False
        if self._segments.active.size_bytes > _WALKED_BYTES_MAX:
            return True
        return self.loaded is None or len(self.loaded) > 0

    def closed(self) -> None:
        """A snapshot was written at the end of the log, if one was needed."""
        if self.needs_snapshot:
            self.snapshot_offset = self._segments.written_offset
