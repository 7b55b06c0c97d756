"""Taking parts out of a log: its oldest segments, or its end."""

from typing import TYPE_CHECKING

from runnel.disk.atomic import replace_file
from runnel.disk.producers_on_disk import snapshot_path
from runnel.disk.segment import Segment
from runnel.disk.segment_writer import WrittenSegment
from runnel.log.names import (
    CLEANED,
    COMPACTION_SWAP,
    DELETED,
    INDEX,
    LOG,
    SNAPSHOT,
    TIME_INDEX,
    offset_name,
)
from runnel.log.swap import Swap, encode_swap
from runnel.ports.files import Files

if TYPE_CHECKING:
    from runnel.disk.disk_log import DiskLog


def drop_below_start(log: "DiskLog") -> int:
    """Let go of the segments that lie wholly below the log start; how many bytes that frees."""
    segments = log.segments.segments
    count = 0
    while count + 1 < len(segments) and segments[count + 1].base_offset <= log.log_start_offset:
        count += 1
    return drop_oldest(log, count) if count else 0


def drop_oldest(log: "DiskLog", count: int) -> int:
    """Let go of the oldest segments. Their files get another name now and are removed after a delay."""
    gone = log.segments.segments[:count]
    del log.segments.segments[:count]
    log.log_start_offset = max(log.log_start_offset, log.segments.segments[0].base_offset)
    log.epochs_changed |= log.epochs.start_at(log.log_start_offset)
    log.unsealed = [entry for entry in log.unsealed if entry[0] not in gone]
    log.forget_hints()
    freed = sum(segment.size_bytes for segment in gone)
    log.size_bytes -= freed
    log.folder_changed = True
    for segment in gone:
        # Oldest first: whatever a crash leaves is still one run of offsets.
        retire(log, segment.base_offset, [LOG, INDEX, TIME_INDEX, SNAPSHOT])
        log.segments.forget(segment)
    if 0 <= log.loose_snapshot_offset < log.log_start_offset:
        log.discard([snapshot_path(log.segments, log.loose_snapshot_offset)])
        log.loose_snapshot_offset = -1
    return freed


def retire(log: "DiskLog", offset: int, suffixes: list[str]) -> None:
    """Rename the files of this offset so that no start takes them for the log's, and remove them later."""
    retired: list[str] = []
    for suffix in suffixes:
        path = f"{log.segments.folder}/{offset_name(offset, suffix)}"
        try:
            log.segments.files.rename(path, path + DELETED)
        except FileNotFoundError:
            continue
        retired.append(path + DELETED)
    log.discard(retired)


def replace_segments(log: "DiskLog", old: list[Segment], written: WrittenSegment | None) -> bool:
    """Put a compacted segment in the place of others.

    One file names the new segment and those it replaces; from the moment it is durable, the swap will be
    completed, now or by recovery. Before that moment, nothing has happened.
    """
    segments = log.segments.segments
    first = segments.index(old[0]) if old and old[0] in segments else -1
    if first < 0 or segments[first : first + len(old)] != old or old[-1] is segments[-1]:
        return False
    new = written.segment if written is not None else None
    swap = Swap(new.base_offset if new is not None else None, [segment.base_offset for segment in old])
    files, folder = log.segments.files, log.segments.folder
    replace_file(files, folder, COMPACTION_SWAP, encode_swap(swap), sync=True)
    finish_swap(files, folder, swap)
    for segment in old:
        log.segments.forget(segment)
    segments[first : first + len(old)] = [new] if new is not None else []
    log.size_bytes += (new.size_bytes if new is not None else 0) - sum(segment.size_bytes for segment in old)
    log.forget_hints()
    return True


def finish_swap(files: Files, folder: str, swap: Swap) -> None:
    """Carry out a swap that was written down. May be done again after a crash at any point."""
    for base_offset in swap.replaced:
        if base_offset != swap.base_offset:
            for suffix in (LOG, INDEX, TIME_INDEX):
                _remove_if_there(files, f"{folder}/{offset_name(base_offset, suffix)}")
    if swap.base_offset is not None:
        for suffix in (INDEX, TIME_INDEX, LOG):
            path = f"{folder}/{offset_name(swap.base_offset, suffix)}"
            if files.exists(path + CLEANED):
                files.rename(path + CLEANED, path)
    files.sync_folder(folder)
    files.remove(f"{folder}/{COMPACTION_SWAP}")


def _remove_if_there(files: Files, path: str) -> None:
    if files.exists(path):
        files.remove(path)
