"""A block of a segment that was read ahead: sequential readers of small batches find the next ones in it.

All logs of a directory share one block. Requests for small reads arrive in runs, one connection and one
partition at a time, and each run begins with a read of its own.
"""

from runnel.disk.segment import Segment
from runnel.ports.files import File

BLOCK_BYTES_MAX = 16 * 1024
READS_AHEAD = 16
"""The number of reads of the same size per block."""


class ReadAhead:
    """Bytes of one segment, all below the end that it had when they were read, so that they cannot change."""

    __slots__ = ("_data", "_segment", "_start")

    def __init__(self) -> None:
        self._segment: Segment | None = None
        self._start = 0
        self._data = b""

    def clear(self) -> None:
        """Invalidate the block: segments were removed, replaced or truncated."""
        self._segment = None
        self._data = b""

    def read(self, segment: Segment, file: File, position: int, length: int) -> bytes | None:
        """`length` bytes from `position`, which are in the segment; None if that would wait for the disk."""
        start = position - self._start
        if segment is not self._segment or start < 0 or start + length > len(self._data):
            end = min(position + min(READS_AHEAD * length, BLOCK_BYTES_MAX), segment.size_bytes)
            self._data = file.pread_resident(end - position, position)
            self._segment, self._start, start = segment, position, 0
            if len(self._data) < length:
                return None
        return self._data[start : start + length]
