"""Repair of a log after its disk failed to truncate or to sync.

After a failed fdatasync the kernel may mark pages clean that were never written, so that a later fdatasync
succeeds without writing them. The records after the durable offset are therefore read, verified, written
again in place and synced; the log is truncated at the first corrupt batch.
"""

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from runnel.batch.errors import CorruptBatch
from runnel.disk.disk_log import DiskLog
from runnel.disk.staged_write import write_all
from runnel.disk.truncation import Truncation, run_now
from runnel.disk.walk import walk_sound_batches
from runnel.ports.files import File, Files, Workers

if TYPE_CHECKING:
    from runnel.disk.batch_cipher import BatchCipher

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class UnsyncedRange:
    """A range of a segment file that may not be durable and must be written again."""

    file: File
    position: int
    size_bytes: int
    start_offset: int
    cipher: "BatchCipher | None"


def start_repair(log: DiskLog, workers: Workers) -> None:
    """Start to repair the log in a thread; it rejects writes until that has succeeded."""
    log.health.can_repair = False
    log.settle()
    try:
        ranges = _ranges(log)
    except (OSError, CorruptBatch) as failure:
        log.fail(f"{log.segments.folder}: {failure}", can_repair=True)
        return
    work = partial(_write_again, log.segments.files, log.segments.folder, ranges)
    workers.submit(work, partial(_repaired, log, log.failure))


def _ranges(log: DiskLog) -> list[UnsyncedRange]:
    segments = log.segments
    found: list[UnsyncedRange] = []
    for segment in segments.segments[segments.segment_of(log.durability.durable_offset) :]:
        if segment.size_bytes or segment is segments.active:
            position = segments.position_in(segment, log.durability.durable_offset)
            file = segments.open(segment, create=segment.size_bytes == 0)
            start_offset = max(segment.base_offset, log.durability.durable_offset)
            found.append(UnsyncedRange(file, position, segment.size_bytes, start_offset, segment.cipher))
    return found


def _write_again(files: Files, folder: str, ranges: list[UnsyncedRange]) -> int | None:
    """The offset to truncate the log to, None if all batches are valid."""
    for unsynced in ranges:
        next_offset = unsynced.start_offset
        try:
            for position, header, batch in walk_sound_batches(
                unsynced.file, unsynced.position, unsynced.size_bytes, unsynced.cipher
            ):
                write_all(unsynced.file, [batch], position)
                next_offset = header.next_offset
        except CorruptBatch:
            return next_offset
        unsynced.file.truncate(unsynced.size_bytes)
        unsynced.file.datasync()
    # A segment whose removal was not durable could reappear and follow what is written from now on.
    files.sync_folder(folder)
    return None


def _repaired(
    log: DiskLog, reason: str | None, end_offset: int | None, failure: BaseException | None
) -> None:
    if log.failure is not reason:
        # It was removed or closed in the meantime.
        return
    if failure is None and end_offset is not None:
        logger.warning("%s: the records behind offset %d are lost", log.segments.folder, end_offset)
        try:
            run_now(Truncation(log, end_offset))
        except (OSError, CorruptBatch) as second:
            failure = second
    if failure is not None:
        log.fail(f"{log.segments.folder}: {failure}", can_repair=True)
        return
    log.health.repaired()
    logger.warning("%s takes writes again", log.segments.folder)
