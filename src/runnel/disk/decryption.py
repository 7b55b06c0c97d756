"""Reads of encrypted segments that are done by a thread, and their results.

    read ─► NotResident(Decryption) ─► run (thread: read, decrypt) ─► finish (loop: keep) ─► read again

A reader that has to load its data reads again: it then finds the batches here, in memory. Results that
are not requested again, because the client has disconnected, are dropped after a while.
"""

from dataclasses import dataclass
from itertools import islice

from runnel.batch.header import read_header
from runnel.disk import reading
from runnel.disk.blocking_read import Plan, SegmentsRead
from runnel.disk.segments import Segments
from runnel.ports.disk import FileSlice, Slice


@dataclass(slots=True)
class _Kept:
    """Decrypted batches."""

    found: Slice
    readers: int
    """The number of readers that have loaded them, and not requested them yet."""
    is_old: bool = False


class DecryptedReads:
    """The results of one log, by the requested offset."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[int, _Kept] = {}

    def keep(self, offset: int, found: Slice) -> None:
        """A reader has loaded these batches."""
        before = self._kept.get(offset)
        self._kept[offset] = _Kept(found, 1 if before is None else before.readers + 1)

    def take(self, offset: int, max_bytes: int, end_offset: int, at_least_one: bool) -> Slice | None:
        """The batches that were loaded for this reader, or for another one that may see no more than it."""
        kept = self._kept.get(offset)
        if kept is None:
            return None
        found = kept.found
        if found.end_offset > end_offset:
            return None
        if found.size_bytes > max_bytes and not (at_least_one and _is_one_batch(found)):
            return None
        kept.readers -= 1
        if kept.readers <= 0:
            del self._kept[offset]
        return found

    def time_passed(self) -> None:
        """Drop what was there at the last call already."""
        if self._kept:
            self._kept = {offset: kept for offset, kept in self._kept.items() if not kept.is_old}
            for kept in self._kept.values():
                kept.is_old = True

    def clear(self) -> None:
        """Segments were removed, replaced or truncated."""
        self._kept.clear()


def _is_one_batch(found: Slice) -> bool:
    (data,) = found.parts
    return not isinstance(data, FileSlice) and read_header(data).size_bytes == found.size_bytes


class Decryption(SegmentsRead[None]):
    """A read of encrypted batches, whose result is kept."""

    __slots__ = ("_end_offset", "_found", "_limits", "_offset", "_results")

    def __init__(
        self,
        segments: Segments,
        results: DecryptedReads,
        offset: int,
        max_bytes: int,
        end_offset: int,
        at_least_one: bool,
    ) -> None:
        self._results, self._offset, self._end_offset = results, offset, end_offset
        self._limits = max_bytes, at_least_one
        self._found = Slice([], 0)
        super().__init__(segments, self._plan)

    def _plan(self) -> Plan[None]:
        segments = self._segments.segments
        first = self._segments.segment_of(self._offset)
        # Compaction may have removed the batches behind the offset: those of a later segment are read then.
        later = (segment for segment in islice(segments, first + 1, None) if segment.size_bytes)
        last = next(later, segments[-1])
        return Plan(self._offset, min(self._end_offset, last.base_offset), self._read)

    def _read(self, view: Segments) -> None:
        max_bytes, at_least_one = self._limits
        self._found = reading.decrypted(
            view, self._offset, max_bytes, self._end_offset, at_least_one=at_least_one
        )

    def finish(self) -> None:
        super().finish()
        if self._found.size_bytes:
            self._results.keep(self._offset, self._found)
