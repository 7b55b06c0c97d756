"""The leader epochs of a log, by which clients and followers find the offset at which two logs diverge."""

from bisect import bisect_right

NO_EPOCH = -1


class Epochs:
    """(epoch, start offset), both ascending."""

    __slots__ = ("_entries",)

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self._entries = entries if entries is not None else []

    @property
    def latest(self) -> int:
        """The newest epoch, or -1."""
        return self._entries[-1][0] if self._entries else NO_EPOCH

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        return tuple(self._entries)

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Add an epoch that starts at `start_offset`; True if the cache changed.

        An epoch without records is replaced by the next one at the same offset.
        """
        if epoch < 0 or epoch <= self.latest:
            return False
        while self._entries and self._entries[-1][1] >= start_offset:
            self._entries.pop()
        self._entries.append((epoch, start_offset))
        return True

    def end_of(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(largest epoch up to the requested one, start offset of the next epoch), or (-1, -1)."""
        if not self._entries or epoch < 0:
            return NO_EPOCH, -1
        if epoch == self.latest:
            return epoch, log_end_offset
        if epoch > self.latest:
            return NO_EPOCH, -1
        found = bisect_right(self._entries, epoch, key=_epoch)
        if found == 0:
            # Older than all retained epochs: the end offset is the start of the first one.
            return epoch, self._entries[0][1]
        return self._entries[found - 1][0], self._entries[found][1]

    def epoch_of(self, offset: int) -> int:
        """The epoch of the record at `offset`, or -1."""
        found = bisect_right(self._entries, offset, key=_start_offset)
        return self._entries[found - 1][0] if found else NO_EPOCH

    def truncate_to(self, end_offset: int) -> bool:
        """Remove epochs from `end_offset` on after truncation; True if the cache changed."""
        count = len(self._entries)
        while self._entries and self._entries[-1][1] >= end_offset:
            self._entries.pop()
        return len(self._entries) != count

    def start_at(self, start_offset: int) -> bool:
        """Offsets below `start_offset` were deleted; the epoch at that offset now starts there."""
        found = bisect_right(self._entries, start_offset, key=_start_offset)
        if found == 0 or (found == 1 and self._entries[0][1] == start_offset):
            return False
        epoch = self._entries[found - 1][0]
        self._entries[:found] = [(epoch, start_offset)]
        return True


def _epoch(entry: tuple[int, int]) -> int:
    return entry[0]


def _start_offset(entry: tuple[int, int]) -> int:
    return entry[1]
