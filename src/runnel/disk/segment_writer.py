"""Writing a compacted segment beside the log, to replace older ones."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runnel.batch.header import read_header
from runnel.disk.segment import Segment
from runnel.disk.staged_write import write_all
from runnel.log.aborted import AbortedTransaction, encode_aborted
from runnel.log.names import ABORTED, CLEANED, INDEX, KEY, LOG, TIME_INDEX, offset_name
from runnel.ports.files import Bytes, File, Files

if TYPE_CHECKING:
    from runnel.disk.keyring import SegmentKeys

_BUFFER_BYTES = 1024 * 1024


@dataclass(slots=True)
class WrittenSegment:
    """A segment whose files are complete and durable under names that no start takes for the log's."""

    segment: Segment
    replaced: list[Segment] = field(default_factory=list)
    """Copies of the segments that it replaces, with their indexes loaded."""


class SegmentWriter:
    """One segment being written; every name ends with `.cleaned` until the log takes it over."""

    __slots__ = ("_buffered", "_buffered_bytes", "_file", "_files", "_folder", "_interval_bytes", "_segment")

    def __init__(
        self,
        files: Files,
        folder: str,
        base_offset: int,
        index_interval_bytes: int,
        keys: "SegmentKeys | None" = None,
    ) -> None:
        """With keys, the segment is encrypted with one of its own."""
        self._files = files
        self._folder = folder
        self._interval_bytes = index_interval_bytes
        self._segment = Segment(base_offset)
        self._segment.start_indexes()
        if keys is not None:
            self._segment.cipher = keys.create_cleaned(files, folder, base_offset)
            self._segment.is_encrypted = True
        self._buffered: list[bytes] = []
        self._buffered_bytes = 0
        self._file: File = files.open(self._path(LOG), create=True)
        self._file.truncate(0)

    def append(self, batch: Bytes) -> None:
        """Add a batch as it is, offsets included."""
        cipher = self._segment.cipher
        stored = bytes(batch) if cipher is None else b"".join(cipher.encrypt(batch))
        self._buffered.append(stored)
        self._buffered_bytes += len(stored)
        self._segment.appended(read_header(stored), self._interval_bytes)
        if self._buffered_bytes >= _BUFFER_BYTES:
            self._flush()

    def finish(self, aborted: list[AbortedTransaction], *, had_aborted: bool) -> WrittenSegment:
        """Everything, indexes included, is durable on return.

        `had_aborted`: a segment that this one replaces may have a file of aborted transactions, which must
        be replaced, if only by an empty one.
        """
        self._flush()
        self._file.datasync()
        segment = self._segment
        segment.close_time_index()
        assert segment.offsets is not None and segment.times is not None
        self._files.write(self._path(INDEX), segment.offsets.encode(), sync=True)
        self._files.write(self._path(TIME_INDEX), segment.times.encode(), sync=True)
        if had_aborted:
            self._files.write(self._path(ABORTED), encode_aborted(aborted), sync=True)
        segment.aborted, segment.aborted_saved = aborted, len(aborted)
        self._files.sync_folder(self._folder)
        segment.has_index_files = True
        return WrittenSegment(segment)

    def discard(self) -> None:
        """Remove what was written."""
        for suffix in (LOG, INDEX, TIME_INDEX, ABORTED, KEY):
            if self._files.exists(self._path(suffix)):
                self._files.remove(self._path(suffix))

    def _flush(self) -> None:
        position = self._segment.size_bytes - self._buffered_bytes
        if self._buffered:
            write_all(self._file, self._buffered, position)
        self._buffered.clear()
        self._buffered_bytes = 0

    def _path(self, suffix: str) -> str:
        return f"{self._folder}/{offset_name(self._segment.base_offset, suffix)}{CLEANED}"
