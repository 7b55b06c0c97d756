"""What a power cut could still take from a log, and from where recovery has to check it.

closed segments, sealed │ closed, not sealed │ active segment
────────────────────────┼────────────────────┼──────────────────────────
       recovery point ──┘      durable offset ──┘        written offset ──┘
"""

from runnel.disk.segment import Segment
from runnel.disk.segments import Segments
from runnel.model.log_config import FOREVER


class Durability:
    """The durable offset of one log, and the changes beside its records that are not durable yet."""

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
        """Everything below survives a power cut."""
        self.unsealed: list[tuple[Segment, bytes | None]] = []
        """Closed segments that are not durable with indexes and snapshot, and the producers at their end."""
        self.epochs_changed = False
        self.folder_changed = False
        """Was a file created, renamed, truncated or outdated, and could a power cut still undo it?"""
        self.is_new = False
        """Was the folder created in this run, and could a power cut still take it?"""
        self.drops = self.drops_durable = 0
        """How often old segments were dropped, and how often of that a power cut can no longer undo."""
        self.recovery_ceiling = FOREVER
        """Where the recovery point stays while the leader epochs cannot be stored."""
        self.sync_ceiling = FOREVER
        """How low the log was truncated while a sync was in flight: that sync proves nothing above."""

    @property
    def recovery_point(self) -> int:
        """Everything below need not be checked after a crash: it is durable, and so are its indexes."""
        recovery_point = min(self.durable_offset, self.recovery_ceiling)
        if not self.unsealed:
            return recovery_point
        return min(recovery_point, self.unsealed[0][0].base_offset)

    @property
    def needs_sync(self) -> bool:
        """Could a power cut change anything?"""
        return (
            self.durable_offset < self._segments.written_offset
            or self.folder_changed
            or self.epochs_changed
            or self.is_new
            or bool(self.unsealed)
        )

    @property
    def start_is_in_file_names(self) -> bool:
        """Is the log start the name of the first segment, also after a power cut?"""
        is_first = self._segments.log_start_offset == self._segments.segments[0].base_offset
        return is_first and self.drops == self.drops_durable

    def truncate(self, end_offset: int) -> None:
        """Nothing from `end_offset` on is durable, even if a sync in flight reports otherwise."""
        self.durable_offset = min(self.durable_offset, end_offset)
        self.sync_ceiling = min(self.sync_ceiling, end_offset)

    def synced_all(self) -> None:
        """All that there is has reached the disk."""
        self.durable_offset = self._segments.written_offset
        self.drops_durable = self.drops
        self.unsealed = []
        self.epochs_changed = self.folder_changed = self.is_new = False
