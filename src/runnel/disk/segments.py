"""The segments of one log: their order, files and indexes, and the log start offset."""

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable
from errno import ENOKEY
from typing import TYPE_CHECKING

from runnel.batch.errors import CorruptBatch
from runnel.batch.header import NO_TIMESTAMP
from runnel.disk.atomic import remove_if_exists
from runnel.disk.open_files import OpenFiles
from runnel.disk.segment import UNKNOWN_TIMESTAMP, Segment
from runnel.disk.walk import find_batch, walk_batch_bounds, walk_headers_of_file
from runnel.log.aborted import AbortedTransaction, encode_aborted
from runnel.log.index import TIME_ENTRY_BYTES, DamagedIndex, OffsetIndex, TimeIndex
from runnel.log.names import ABORTED, INDEX, KEY, LOG, TEMPORARY, TIME_INDEX, offset_name
from runnel.model.log_config import FOREVER
from runnel.ports.files import File, Files

if TYPE_CHECKING:
    from runnel.disk.keyring import SegmentKeys

logger = logging.getLogger(__name__)


class IndexDiscarded(CorruptBatch):
    """An entry of an index does not point at its batch: the index is discarded, and rebuilt when needed."""


class LongRebuild(Exception):
    """Rebuilding an index requires more batches than may be scanned on the event loop."""


class Segments:
    """Segments in offset order; the last one is active. There is always one, possibly only in memory."""

    __slots__ = (
        "_open_files",
        "encrypts",
        "files",
        "folder",
        "generation",
        "has_encrypted",
        "keys",
        "log_start_offset",
        "read_ahead",
        "segments",
        "size_bytes",
        "with_aborted",
    )

    def __init__(
        self, files: Files, open_files: OpenFiles, folder: str, keys: "SegmentKeys | None" = None
    ) -> None:
        self.files = files
        self.folder = folder
        self.keys = keys
        """None if this node has no master key."""
        self.encrypts = False
        """Are new segments encrypted?"""
        self.has_encrypted = False
        """May there be an encrypted segment?"""
        self.segments: list[Segment] = []
        self.log_start_offset = 0
        """The log start offset; the first segment may begin before it."""
        self.size_bytes = 0
        self.generation = 0
        """Incremented when segments are removed, replaced or truncated."""
        self.with_aborted: list[Segment] | None = None
        """The segments that may contain abort markers, in order; None if unknown."""
        self.read_ahead = open_files.read_ahead
        self._open_files = open_files

    def fill(self, segments: list[Segment], log_start_offset: int) -> None:
        """Install these segments and the log start offset."""
        self.segments = segments
        self.has_encrypted = any(segment.is_encrypted for segment in segments)
        self.log_start_offset = max(log_start_offset, segments[0].base_offset)
        self.size_bytes = sum(segment.size_bytes for segment in segments)

    def leased(self, files: Files) -> "Segments":
        """The same directory for a thread, with a revocable lease and without segments."""
        return Segments(files, self._open_files, self.folder, self.keys)

    def view(self, files: Files, files_max: int) -> "Segments":
        """The same directory for a thread that opens files of its own, without segments."""
        return Segments(files, OpenFiles(files, files_max), self.folder, self.keys)

    def find_keys(self, names: Iterable[str]) -> None:
        """Note which segments are encrypted, given the names of all files."""
        found = frozenset(name for name in names if name.endswith(KEY))
        if found:
            for segment in self.segments:
                segment.is_encrypted = offset_name(segment.base_offset, KEY) in found

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def written_offset(self) -> int:
        """The offset up to which records are written to the files."""
        return self.segments[-1].next_offset

    def changed(self) -> None:
        """Invalidate what was derived from removed, replaced or truncated segments."""
        self.with_aborted = None
        self.generation += 1
        self.read_ahead.clear()

    def path(self, segment: Segment, suffix: str) -> str:
        return f"{self.folder}/{offset_name(segment.base_offset, suffix)}"

    def open(self, segment: Segment, *, create: bool = False) -> File:
        """The segment's file. Callers on the hot path check `segment.file` first."""
        if segment.is_encrypted and segment.cipher is None:
            if self.keys is None:
                raise self._no_key()
            segment.cipher = self.keys.load(self.files, self.folder, segment.base_offset)
        return self._open_files.open(segment, self.path(segment, LOG), create=create)

    def begin(self, segment: Segment) -> None:
        """Before the first batch is written to a segment, in any thread: create its key if it has one.

        Without encryption, remove what a truncation that was interrupted may have left.
        """
        if self.encrypts and not segment.is_encrypted:
            if self.keys is None:
                raise self._no_key()
            segment.cipher = self.keys.create(self.files, self.folder, segment.base_offset)
            segment.is_encrypted = True
        elif self.keys is not None and not segment.is_encrypted:
            path = self.path(segment, KEY)
            if self.files.exists(path):
                self.files.remove(path)
                self.files.sync_folder(self.folder)

    def needs_key(self, *, rolls: bool) -> bool:
        """Will the next write create a key, which waits for the disk?"""
        return self.encrypts and (rolls or not self.active.is_encrypted)

    def _no_key(self) -> OSError:
        return OSError(ENOKEY, f"{self.folder} is encrypted, and this node has no master key")

    def forget(self, segment: Segment) -> None:
        """Close the segment's file and drop its indexes."""
        self._open_files.forget(segment)
        segment.offsets = segment.times = None

    def segment_of(self, offset: int) -> int:
        """The index of the segment with `offset`: the last one that does not begin after it."""
        return max(bisect_right(self.segments, offset, key=_base_offset) - 1, 0)

    def locate(self, offset: int) -> tuple[Segment, int]:
        """(segment, position) of the batch with `offset`, or of the next batch."""
        found = self.segment_of(offset)
        segment = self.segments[found]
        position = self.position_in(segment, offset)
        while position >= segment.size_bytes and found + 1 < len(self.segments):
            found += 1
            segment, position = self.segments[found], 0
        return segment, position

    def position_in(self, segment: Segment, offset: int) -> int:
        """The position of the first batch that does not end before `offset`; the segment's size if all do."""
        if offset <= segment.base_offset or segment.size_bytes == 0:
            return 0
        if offset >= segment.next_offset:
            return segment.size_bytes
        start = self.checked(segment, self.offsets_of(segment).entry_before(offset))
        return find_batch(self.open(segment), start, segment.size_bytes, offset)[0]

    def checked(self, segment: Segment, entry: tuple[int, int]) -> int:
        """The position of an index entry. Raises IndexDiscarded unless its batch is there.

        Index files have no checksum, and a wrong entry would skip records.
        """
        last_offset, position = entry
        if last_offset < 0:
            return position
        try:
            bounds = next(walk_batch_bounds(self.open(segment), position, segment.size_bytes))
        except CorruptBatch:
            # Either the index or the batch is damaged; if it is the batch, rebuilding the index fails.
            bounds = None
        if bounds is None or bounds[3] - 1 != last_offset:
            self._discard_index(segment)
            raise IndexDiscarded(f"{self.path(segment, INDEX)} is damaged at offset {last_offset}")
        return position

    def _discard_index(self, segment: Segment) -> None:
        logger.warning("%s is damaged, and is rebuilt", self.path(segment, INDEX))
        for suffix in (INDEX, TIME_INDEX):
            remove_if_exists(self.files, self.path(segment, suffix))
        if segment is self.active:
            # It may be written to just now.
            self.rebuild_indexes(segment)
        else:
            segment.offsets = None

    def base_offset_at(self, segment: Segment, position: int) -> int:
        """The base offset of the batch at this position, or the offset after the segment's end."""
        if position >= segment.size_bytes:
            return segment.next_offset
        return next(walk_batch_bounds(self.open(segment), position, segment.size_bytes))[2]

    def offsets_of(self, segment: Segment) -> OffsetIndex:
        if segment.offsets is None:
            self._load(segment, self._load_offsets)
            assert segment.offsets is not None
        return segment.offsets

    def times_of(self, segment: Segment) -> TimeIndex:
        if segment.times is None:
            self._load(segment, self._load_times)
            assert segment.times is not None
        return segment.times

    def max_timestamp_of(self, segment: Segment) -> int:
        """The segment's largest timestamp, or -1."""
        if segment.max_timestamp == UNKNOWN_TIMESTAMP:
            self._load(segment, self._load_max_timestamp)
        return segment.max_timestamp

    def load_indexes(self, segment: Segment, batches_max: int = FOREVER) -> None:
        """Load both indexes of a segment that is about to grow.

        Raises LongRebuild if more batches than this would have to be walked.
        """
        if segment.offsets is None:
            self._load(segment, self._load_offsets, batches_max)
        if segment.times is None:
            self._load(segment, self._load_times, batches_max)

    def install(self, segment: Segment, loaded: Segment) -> None:
        """Install the indexes that a copy of this segment has loaded or rebuilt."""
        is_new = False
        if segment.offsets is None and loaded.offsets is not None:
            segment.offsets, segment.bytes_since_entry = loaded.offsets, loaded.bytes_since_entry
            is_new = True
        if segment.times is None and loaded.times is not None:
            segment.times, is_new = loaded.times, True
        if segment.max_timestamp == UNKNOWN_TIMESTAMP:
            segment.max_timestamp = loaded.max_timestamp
            segment.max_timestamp_offset = loaded.max_timestamp_offset
        if segment.aborted is None and loaded.aborted is not None:
            segment.aborted, segment.aborted_saved, is_new = loaded.aborted, loaded.aborted_saved, True
        if is_new:
            segment.has_index_files = loaded.has_index_files
            if segment.has_index_files:
                self._open_files.indexes_loaded(segment)

    def _load(self, segment: Segment, load: Callable[[Segment], None], batches_max: int = FOREVER) -> None:
        """Load an index from its file if that is valid, or rebuild it from the segment."""
        if segment.size_bytes == 0:
            segment.start_indexes()
            return
        try:
            load(segment)
        except (FileNotFoundError, DamagedIndex):
            self.rebuild_indexes(segment, batches_max=batches_max)
        else:
            segment.has_index_files = True
            self._open_files.indexes_loaded(segment)

    def _load_offsets(self, segment: Segment) -> None:
        data = self.files.read(self.path(segment, INDEX))
        segment.offsets = OffsetIndex.decode(data, segment.base_offset, segment.size_bytes)

    def _load_times(self, segment: Segment) -> None:
        data = self.files.read(self.path(segment, TIME_INDEX))
        segment.times = TimeIndex.decode(data, segment.base_offset)
        if segment.times.last is not None:
            segment.max_timestamp_offset = segment.times.last[1]

    def _load_max_timestamp(self, segment: Segment) -> None:
        # Only the last entry is needed; decoding a large index is slow.
        data = self.files.read(self.path(segment, TIME_INDEX))[-TIME_ENTRY_BYTES:]
        last = TimeIndex.decode(data, segment.base_offset).last
        segment.max_timestamp, segment.max_timestamp_offset = last or (NO_TIMESTAMP, segment.base_offset)

    def rebuild_indexes(
        self, segment: Segment, interval_bytes: int = 4096, batches_max: int = FOREVER
    ) -> None:
        """Rebuild the indexes from the batches of the segment; LongRebuild if there are more than this."""
        scratch = Segment(segment.base_offset)
        scratch.start_indexes()
        headers = walk_headers_of_file(self.open(segment), 0, segment.size_bytes)
        for count, (_, header) in enumerate(headers):
            if count >= batches_max:
                raise LongRebuild(f"{self.path(segment, INDEX)} is being rebuilt")
            scratch.appended(header, interval_bytes)
        segment.offsets, segment.times = scratch.offsets, scratch.times
        segment.max_timestamp = scratch.max_timestamp
        segment.max_timestamp_offset = scratch.max_timestamp_offset
        segment.bytes_since_entry = scratch.bytes_since_entry
        # Without an entry there is nothing to be stored.
        segment.has_index_files = not scratch.offsets

    def add_aborted(self, entries: list[AbortedTransaction]) -> None:
        """These transactions were aborted by markers that have just been written."""
        for entry in entries:
            segment = self.segments[self.segment_of(entry.last_offset)]
            assert segment.aborted is not None
            if not segment.aborted and self.with_aborted is not None:
                self.with_aborted.append(segment)
            segment.aborted.append(entry)

    def aborted_loaded(self, segment: Segment) -> None:
        """Account for the aborted transactions that were loaded for this segment."""
        if segment.has_index_files:
            self._open_files.indexes_loaded(segment)

    def save_aborted(self, segment: Segment) -> None:
        """Store the aborted transactions in the file beside the segment; durable on return.

        It has no checksum, and a missing file counts as an empty one. So it is complete before the snapshot
        is written that makes recovery rely on it.
        """
        aborted = segment.aborted
        if aborted is None or segment.aborted_saved == len(aborted):
            return
        path = self.path(segment, ABORTED)
        if aborted:
            self.files.write(path + TEMPORARY, encode_aborted(aborted), sync=True)
            self.files.rename(path + TEMPORARY, path)
            self.files.sync_folder(self.folder)
        elif self.files.exists(path):
            self.files.remove(path)
            self.files.sync_folder(self.folder)
        segment.aborted_saved = len(aborted)

    def correct_aborted(self, segment: Segment) -> None:
        """Remove truncated entries from the file: recovery ignores them, but tools read it."""
        path = self.path(segment, ABORTED)
        if segment.aborted is None or not self.files.exists(path):
            return
        if not encode_aborted(segment.aborted).startswith(self.files.read(path)):
            self.save_aborted(segment)

    def prepare_indexes(self, segment: Segment, *, sync: bool) -> None:
        """Write the loaded indexes under temporary names, in any thread, while nothing is appended."""
        self.save_aborted(segment)
        offsets, times = segment.offsets, segment.times
        if offsets is not None and times is not None and len(offsets):
            self.files.write(self.path(segment, TIME_INDEX + TEMPORARY), times.encode(), sync=sync)
            self.files.write(self.path(segment, INDEX + TEMPORARY), offsets.encode(), sync=sync)

    def publish_indexes(self, segment: Segment) -> None:
        """Rename the prepared files to their final names.

        The index files have no checksum, so they are replaced whole, and the time index first: one with
        fewer entries than the offset index would hide the newest records from lookups by timestamp.
        """
        if segment.offsets is None or segment.times is None:
            return
        for suffix in (TIME_INDEX, INDEX):
            path = self.path(segment, suffix)
            if len(segment.offsets):
                self.files.rename(path + TEMPORARY, path)
            else:
                # Scanning a segment that is too small for an index entry is faster than opening two files.
                remove_if_exists(self.files, path)
        segment.has_index_files = True


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
