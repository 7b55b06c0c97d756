"""What a power failure could remove from a log, and the recovery point.

closed segments, sealed │ closed, not sealed │ active segment
────────────────────────┼────────────────────┼──────────────────────────
       recovery point ──┘      durable offset ──┘        written offset ──┘
"""

from runnel.disk.segment import Segment
from runnel.disk.segments import Segments
from runnel.model.log_config import FOREVER


class Durability:
    """The durable offset of one log, and the changes of other files that are not durable yet."""

    __slots__ = (
        "_segments",
        "drops",
        "drops_durable",
        "durable_offset",
        "epochs_changed",
        "folder_changed",
        "is_new",
        "recovery_ceiling",
        "sync_ceiling",
        "unsealed",
    )

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self.durable_offset = segments.written_offset
        """Records below survive a power failure."""
        self.unsealed: list[tuple[Segment, bytes | None]] = []
        """Closed segments that are not durable with indexes and snapshot, and the producers at their end."""
        self.epochs_changed = False
        self.folder_changed = False
        """Was a file created, renamed, truncated or outdated, without being durable yet?"""
        self.is_new = False
        """Was the directory created in this run, without being durable yet?"""
        self.drops = self.drops_durable = 0
        """The number of drops of old segments, and how many of these are durable."""
        self.recovery_ceiling = FOREVER
        """Where the recovery point stays while the leader epochs cannot be stored."""
        self.sync_ceiling = FOREVER
        """The lowest truncation while a sync was in flight: that sync makes nothing above it durable."""

    @property
    def recovery_point(self) -> int:
        """The recovery point: records below, with their indexes, are not verified after a crash."""
        recovery_point = min(self.durable_offset, self.recovery_ceiling)
        if not self.unsealed:
            return recovery_point
        return min(recovery_point, self.unsealed[0][0].base_offset)

    @property
    def needs_sync(self) -> bool:
        """Is anything not durable yet?"""
        return (
            self.durable_offset < self._segments.written_offset
            or self.folder_changed
            or self.epochs_changed
            or self.is_new
            or bool(self.unsealed)
        )

    @property
    def start_is_in_file_names(self) -> bool:
        """Is the log start the base offset of the first segment, durably?"""
        is_first = self._segments.log_start_offset == self._segments.segments[0].base_offset
        return is_first and self.drops == self.drops_durable

    def truncate(self, end_offset: int) -> None:
        """Nothing from `end_offset` on is durable, even if a sync in flight completes."""
        self.durable_offset = min(self.durable_offset, end_offset)
        self.sync_ceiling = min(self.sync_ceiling, end_offset)

    def synced_all(self) -> None:
        """Everything is durable."""
        self.durable_offset = self._segments.written_offset
        self.drops_durable = self.drops
        self.unsealed = []
        self.epochs_changed = self.folder_changed = self.is_new = False
