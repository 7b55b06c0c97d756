"""A bounded cache of open segment files and loaded indexes."""

from runnel.batch.errors import CorruptBatch
from runnel.disk.read_ahead import ReadAhead
from runnel.disk.segment import Segment
from runnel.ports.files import File, Files

INDEX_BYTES_MAX = 64 * 1024 * 1024
"""Indexes of closed segments held in memory: a gigabyte of records has up to five megabytes of index."""


class OpenFiles:
    """A bounded set of open segment files. A dropped file is closed once no reader holds it."""

    __slots__ = ("_files", "_index_bytes", "_indexed", "_open", "limit", "read_ahead")

    def __init__(self, files: Files, limit: int) -> None:
        self._files = files
        self._open: dict[Segment, None] = {}
        self._indexed: dict[Segment, int] = {}
        """Segments whose indexes came from their files, oldest first, and what they take."""
        self._index_bytes = 0
        self.limit = limit
        self.read_ahead = ReadAhead()

    def __len__(self) -> int:
        return len(self._open)

    def open(self, segment: Segment, path: str, *, create: bool = False) -> File:
        """The segment's file; opening it may drop one that was not used lately."""
        file = segment.file
        if file is None:
            if len(self._open) >= self.limit:
                self._drop_a_cold_one()
            file = self._files.open(path, create=create)
            if not create and file.size_bytes() < segment.size_bytes:
                # To append would leave a hole.
                raise CorruptBatch(f"{path} ends before position {segment.size_bytes}")
            segment.file = file
            self._open[segment] = None
        segment.is_warm = True
        return file

    def forget(self, segment: Segment) -> None:
        """The segment does not need its file, or will reopen it."""
        self._open.pop(segment, None)
        segment.file = None

    def indexes_loaded(self, segment: Segment) -> None:
        """The indexes of this segment were loaded; others may be evicted."""
        size_bytes = segment.index_bytes
        self._index_bytes += size_bytes - self._indexed.pop(segment, 0)
        self._indexed[segment] = size_bytes
        while self._index_bytes > INDEX_BYTES_MAX and len(self._indexed) > 1:
            oldest = next(iter(self._indexed))
            self._index_bytes -= self._indexed.pop(oldest)
            _drop_indexes(oldest)

    def _drop_a_cold_one(self) -> None:
        # Second chance: a warm file is cooled and goes to the back of the queue. If all are pinned, one more
        # than the limit stays open.
        for _ in range(2 * len(self._open)):
            segment = next(iter(self._open))
            if not segment.is_warm and not segment.is_pinned:
                self.forget(segment)
                self._index_bytes -= self._indexed.pop(segment, 0)
                _drop_indexes(segment)
                return
            segment.is_warm = False
            del self._open[segment]
            self._open[segment] = None


def _drop_indexes(segment: Segment) -> None:
    if segment.has_index_files and not segment.is_pinned:
        segment.offsets = segment.times = None
        if segment.aborted and segment.aborted_saved == len(segment.aborted):
            segment.aborted = None
