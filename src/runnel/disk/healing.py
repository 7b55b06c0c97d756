"""Bringing a log back after its disk refused to cut or to sync.

After a failed fdatasync the kernel may take pages for clean that never reached the disk, so another fdatasync
that succeeds proves nothing about them. What is stored behind the durable offset is therefore read, checked,
written again in place and synced; where a batch is no longer sound, the log ends.
"""

import logging
from dataclasses import dataclass
from functools import partial

from runnel.batch.errors import CorruptBatch
from runnel.disk.disk_log import DiskLog
from runnel.disk.staged_write import write_all
from runnel.disk.surgery import truncate_to
from runnel.disk.walk import walk_sound_batches
from runnel.ports.files import File, Files, Workers

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Stretch:
    """A part of a segment file that must be written again."""

    file: File
    position: int
    size_bytes: int
    start_offset: int


def start_healing(log: DiskLog, workers: Workers) -> None:
    """Try to bring the log back, in a thread; it refuses writes until that has succeeded."""
    log.health.can_heal = False
    log.settle()
    try:
        stretches = _stretches(log)
    except (OSError, CorruptBatch) as failure:
        log.fail(f"{log.segments.folder}: {failure}", can_heal=True)
        return
    work = partial(_write_again, log.segments.files, log.segments.folder, stretches)
    workers.submit(work, partial(_healed, log, log.failure))


def _stretches(log: DiskLog) -> list[Stretch]:
    segments = log.segments
    found: list[Stretch] = []
    for segment in segments.segments[segments.segment_of(log.durability.durable_offset) :]:
        if segment.size_bytes or segment is segments.active:
            position = segments.position_in(segment, log.durability.durable_offset)
            file = segments.open(segment, create=segment.size_bytes == 0)
            start_offset = max(segment.base_offset, log.durability.durable_offset)
            found.append(Stretch(file, position, segment.size_bytes, start_offset))
    return found


def _write_again(files: Files, folder: str, stretches: list[Stretch]) -> int | None:
    """The offset behind the last sound batch if the log must end there, None if all are sound."""
    for stretch in stretches:
        next_offset = stretch.start_offset
        try:
            for position, header, batch in walk_sound_batches(
                stretch.file, stretch.position, stretch.size_bytes
            ):
                write_all(stretch.file, [batch], position)
                next_offset = header.next_offset
        except CorruptBatch:
            return next_offset
        stretch.file.truncate(stretch.size_bytes)
        stretch.file.datasync()
    # A segment whose removal was not durable could reappear and follow what is written from now on.
    files.sync_folder(folder)
    return None


def _healed(log: DiskLog, reason: str | None, end_offset: int | None, failure: BaseException | None) -> None:
    if log.failure is not reason:
        # It was removed or closed in the meantime.
        return
    if failure is None and end_offset is not None:
        logger.warning("%s: what stood behind offset %d is lost", log.segments.folder, end_offset)
        try:
            truncate_to(log, end_offset)
        except OSError as second:
            failure = second
    if failure is not None:
        log.fail(f"{log.segments.folder}: {failure}", can_heal=True)
        return
    log.health.heal()
    logger.warning("%s takes writes again", log.segments.folder)
