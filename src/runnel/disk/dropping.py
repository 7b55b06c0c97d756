"""Deletes the oldest segments of a log."""

from typing import TYPE_CHECKING

from runnel.disk.producers_on_disk import snapshot_offsets
from runnel.log.names import (
    ABORTED,
    DELETED,
    INDEX,
    KEY,
    LOG,
    SNAPSHOT,
    TIME_INDEX,
    offset_name,
    offset_of,
)

if TYPE_CHECKING:
    from runnel.disk.disk_log import DiskLog


def drop_below_start(log: "DiskLog") -> int:
    """Delete sealed segments below the log start offset; returns their number."""
    segments = log.segments.segments
    count = 0
    while count + 1 < len(segments) and segments[count + 1].base_offset <= log.log_start_offset:
        count += 1
    return drop_oldest(log, count)


def drop_oldest(log: "DiskLog", count: int) -> int:
    """Delete the oldest segments that are sealed; returns their number.

    Their files get another name now and are removed after a delay. A thread may be about to
    publish the indexes of a segment that is not sealed, by name. And the snapshot at its end, from which the
    producers of the rest of the log are loaded, does not exist yet.
    """
    count = min(count, log.droppable_count)
    if count == 0:
        return 0
    dropped = log.segments.segments[:count]
    # A power failure may restore segments that were deleted since the last sync, and then their aborted
    # transactions and keys are needed: those files are deleted later.
    stale_offset = dropped[0].base_offset if log.durability.drops == log.durability.drops_durable else 0
    del log.segments.segments[:count]
    log.segments.log_start_offset = max(log.log_start_offset, log.segments.segments[0].base_offset)
    log.durability.epochs_changed |= log.epochs.start_at(log.log_start_offset)
    log.segments_changed()
    log.segments.size_bytes -= sum(segment.size_bytes for segment in dropped)
    log.durability.folder_changed = True
    log.durability.drops += 1
    for segment in dropped:
        # Oldest first, so that offsets stay contiguous after a crash.
        retire(log, segment.base_offset, [LOG, INDEX, TIME_INDEX])
        log.segments.forget(segment)
    _drop_stale_files(log, stale_offset)
    return count


def _drop_stale_files(log: "DiskLog", stale_offset: int) -> None:
    """Drop producer snapshots from before the first segment; compaction may have left some as well.

    Also the aborted transactions and keys of segments that a power cut cannot restore.
    """
    first_offset = log.segments.segments[0].base_offset
    names = log.segments.files.names(log.segments.folder)
    for offset in snapshot_offsets(names):
        if offset < first_offset:
            retire(log, offset, [SNAPSHOT])
    for name in names:
        for suffix in (ABORTED, KEY):
            offset_beside = offset_of(name, suffix)
            if offset_beside is not None and offset_beside < stale_offset:
                retire(log, offset_beside, [suffix])
    if log.producer_state.snapshot_offset < first_offset:
        log.producer_state.snapshot_offset = -1


def retire(log: "DiskLog", offset: int, suffixes: list[str]) -> None:
    """Rename the files of this offset to `.deleted`, and remove them later."""
    retired: list[str] = []
    for suffix in suffixes:
        path = f"{log.segments.folder}/{offset_name(offset, suffix)}"
        try:
            log.segments.files.rename(path, path + DELETED)
        except FileNotFoundError:
            continue
        retired.append(path + DELETED)
    log.discard(retired)
