"""Replaces segments by a compacted one: committed by one file, carried out by a thread.

    begin (loop: pin the old segments) ─► run (thread: decide, rename, sync) ─► end (loop: replace in memory)

The swap file lists the new segment and those it replaces; once it is durable the swap is committed, and is
completed by this run or by recovery. During the swap, readers use the open files and loaded indexes of the
old segments (pinned), because the new one takes over their names. A pinned segment is never dropped.
"""

from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING

from runnel.disk.atomic import replace_file
from runnel.disk.folder_lease import FolderLease
from runnel.disk.segment import Segment
from runnel.disk.segment_writer import WrittenSegment
from runnel.log.names import (
    ABORTED,
    CLEANED,
    COMPACTION_SWAP,
    DELETED,
    INDEX,
    KEY,
    LOG,
    TIME_INDEX,
    offset_name,
)
from runnel.log.swap import Swap, encode_swap
from runnel.ports.files import Files

if TYPE_CHECKING:
    from runnel.disk.disk_log import DiskLog


class SegmentSwap:
    """One swap of segments in the files of a log."""

    __slots__ = ("_files", "_folder", "_lock", "_swap", "failure", "is_decided", "new", "old", "retired")

    def __init__(self, files: FolderLease, folder: str, old: list[Segment], new: Segment) -> None:
        self._files, self._folder = files, folder
        self._swap = Swap(new.base_offset, [segment.base_offset for segment in old])
        self._lock = Lock()
        self.old, self.new = old, new
        self.retired: list[str] | None = None
        """The files of the old segments under their new names, once the swap is complete."""
        self.failure: OSError | None = None
        self.is_decided = False
        """Is the swap committed, so that the next start completes it if necessary?"""

    def run(self) -> None:
        """Run the swap once, in a thread, or on the event loop if that cannot wait."""
        with self._lock:
            if self.has_run:
                return
            try:
                replace_file(self._files, self._folder, COMPACTION_SWAP, encode_swap(self._swap), sync=True)
                self.retired = finish_swap(self._files, self._folder, self._swap)
            except OSError as failure:
                self.failure = failure
                with suppress(FileNotFoundError):
                    self.is_decided = self._files.exists(f"{self._folder}/{COMPACTION_SWAP}")

    @property
    def is_abandoned(self) -> bool:
        """Was the log removed, so that no more files are renamed?"""
        return self._files.is_revoked

    @property
    def has_run(self) -> bool:
        return self.retired is not None or self.failure is not None


def begin_swap(log: "DiskLog", old: list[Segment], written: WrittenSegment) -> SegmentSwap | None:
    """Pin the old segments; None if some no longer exist."""
    segments = log.segments.segments
    if log.failure is not None or log.swap is not None:
        return None
    first = segments.index(old[0]) if old[0] in segments else -1
    if first < 0 or segments[first : first + len(old)] != old or old[-1] is segments[-1]:
        return None
    for segment, loaded in zip(old, written.replaced, strict=True):
        log.segments.open(segment)
        log.segments.install(segment, loaded)
        segment.is_pinned = True
    # A reader that is about to open one of these files by name must detect that it may be another.
    log.segments.generation += 1
    log.swap = SegmentSwap(log.cleaner_files(), log.segments.folder, old, written.segment)
    return log.swap


def end_swap(log: "DiskLog", swap: SegmentSwap) -> bool:
    """Replace the segments in memory if that was done on disk. Raises the OSError of the swap."""
    if swap.is_abandoned:
        return False
    if log.swap is swap:
        log.swap = None
        for segment in swap.old:
            segment.is_pinned = False
        if swap.retired is not None:
            _replace(log, swap.old, swap.new)
            log.discard(swap.retired)
        elif swap.is_decided and log.failure is None:
            # The next start will complete it: until then both halves must stay.
            reason = f"{log.segments.folder}: a compaction was interrupted half way: {swap.failure}"
            log.fail(reason, can_repair=False)
    if swap.failure is not None:
        raise swap.failure
    return swap.retired is not None


def _replace(log: "DiskLog", old: list[Segment], new: Segment) -> None:
    for segment in old:
        log.segments.forget(segment)
    segments = log.segments.segments
    first = segments.index(old[0])
    segments[first : first + len(old)] = [new]
    log.segments.size_bytes += new.size_bytes - sum(segment.size_bytes for segment in old)
    log.segments_changed()


def finish_swap(files: Files, folder: str, swap: Swap) -> list[str]:
    """Carry out a swap that is decided; the files that are no longer needed.

    May be repeated after a crash at any point: a new file that has its final name already is not touched.
    """
    retired: list[str] = []
    for base_offset in swap.replaced:
        for suffix in (INDEX, TIME_INDEX, ABORTED, KEY, LOG):
            path = f"{folder}/{offset_name(base_offset, suffix)}"
            is_waiting = base_offset != swap.base_offset or files.exists(path + CLEANED)
            if is_waiting and files.exists(path):
                # Only renamed: freeing a large file takes time, and readers may have it open.
                files.rename(path, path + DELETED)
                retired.append(path + DELETED)
    if swap.base_offset is not None:
        for suffix in (INDEX, TIME_INDEX, ABORTED, KEY, LOG):
            path = f"{folder}/{offset_name(swap.base_offset, suffix)}"
            if files.exists(path + CLEANED):
                files.rename(path + CLEANED, path)
    files.sync_folder(folder)
    files.remove(f"{folder}/{COMPACTION_SWAP}")
    return retired
