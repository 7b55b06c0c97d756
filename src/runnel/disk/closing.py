"""Closes logs cleanly, so that the next start need not open their files."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from runnel.disk.atomic import remove_if_exists, replace_file
from runnel.disk.disk_log import DiskLog
from runnel.disk.producers_on_disk import snapshot_path, write_snapshot
from runnel.log.checkpoints import encode_epochs, encode_partition_metadata
from runnel.log.manifest import LogEntry, SegmentEntry
from runnel.log.names import EPOCHS, LOG, PARTITION_METADATA
from runnel.log.producer_snapshot import encode_producers
from runnel.model.ids import TopicPartition
from runnel.ports.files import Files, Workers

logger = logging.getLogger(__name__)

FEW_LOGS_MAX = 100
"""Maximum number of changed logs that are synced file by file; for more, one syncfs is faster."""
LOGS_AT_ONCE_MAX = 200
"""Logs whose files are opened for their last sync together: descriptors are scarce."""


def close_logs(
    logs: Iterable[DiskLog], files: Files, folder: str, workers: Workers
) -> dict[TopicPartition, LogEntry]:
    """Make all logs durable; returns the entries of those that succeeded. Others are recovered at start."""
    sound = [log for log in logs if log.failure is None]
    changed = [log for log in sound if _has_changed(log)]
    are_few = len(changed) <= FEW_LOGS_MAX
    done: Sequence[DiskLog] = changed
    try:
        for step in (_prepare, _publish):
            done = _run_all(workers, done, partial(step, sync=are_few))
            if not are_few:
                files.sync_volume(folder)
        done = _run_all(workers, done, _finish)
    except OSError as failure:
        logger.warning("%s is not closed cleanly: %s", folder, failure)
        done = []
    lost = set(changed).difference(done)
    return {log.name: entry_of(log) for log in sound if log not in lost}


def _run_all(workers: Workers, logs: Sequence[DiskLog], step: Callable[[DiskLog], None]) -> list[DiskLog]:
    """Run this step for all logs; returns those that succeeded."""
    done: list[DiskLog] = []
    for some in _chunks(logs):
        outcomes = workers.run_all([partial(step, log) for log in some])
        for log, failure in zip(some, outcomes, strict=True):
            if failure is None:
                done.append(log)
            else:
                logger.warning("%s is not closed cleanly: %s", log.segments.folder, failure)
    return done


def _chunks(logs: Sequence[DiskLog]) -> Iterator[Sequence[DiskLog]]:
    for start in range(0, len(logs), LOGS_AT_ONCE_MAX):
        yield logs[start : start + LOGS_AT_ONCE_MAX]


def _prepare(log: DiskLog, *, sync: bool) -> None:
    """Write files that may be incomplete after a crash."""
    segments = log.segments
    files, folder = segments.files, segments.folder
    if log.durability.is_new and sync:
        data = encode_partition_metadata(log.topic_id)
        files.write(f"{folder}/{PARTITION_METADATA}", data, sync=True)
    if log.durability.epochs_changed:
        replace_file(files, folder, EPOCHS, encode_epochs(log.epochs.entries), sync=sync)
    segments.active.close_time_index()
    for segment in [*(segment for segment, _ in log.durability.unsealed), segments.active]:
        segments.prepare_indexes(segment, sync=sync)


def _publish(log: DiskLog, *, sync: bool) -> None:
    """Rename the indexes, sync the batches, then write the snapshots of the producers that confirm it."""
    segments = log.segments
    for segment in [*(segment for segment, _ in log.durability.unsealed), segments.active]:
        segments.publish_indexes(segment)
        path = segments.path(segment, LOG)
        if segment.size_bytes or segments.files.exists(path):
            # Not the log's own open file: this runs in a thread. An empty one may have been truncated.
            segments.files.open(path).datasync()
    for segment, snapshot in log.durability.unsealed:
        if snapshot is not None:
            write_snapshot(segments, segment.next_offset, snapshot, sync=sync)
    if log.producer_state.needs_snapshot:
        producers = log.producer_state.get_blocking()
        write_snapshot(segments, log.written_offset, encode_producers(producers), sync=sync)
    if sync:
        segments.files.sync_folder(segments.folder)
        if log.durability.is_new:
            segments.files.sync_folder(segments.folder.rpartition("/")[0])


def _finish(log: DiskLog) -> None:
    """Record that all of it is durable, and remove the snapshot of the last clean stop."""
    segments = log.segments
    former = log.producer_state.snapshot_offset
    log.closed_durably()
    is_loose = all(segment.base_offset != former for segment in segments.segments)
    if 0 <= former != log.producer_state.snapshot_offset and is_loose:
        remove_if_exists(segments.files, snapshot_path(segments, former))


def entry_of(log: DiskLog) -> LogEntry:
    """The manifest entry of a log that is durable."""
    return LogEntry(
        log.topic_id,
        log.log_start_offset,
        log.producer_state.snapshot_offset == log.written_offset,
        list(log.epochs.entries),
        [
            SegmentEntry(
                segment.base_offset,
                segment.next_offset,
                segment.size_bytes,
                segment.first_timestamp,
                segment.max_timestamp,
                segment.is_encrypted,
            )
            for segment in log.segments.segments
        ],
    )


def _has_changed(log: DiskLog) -> bool:
    active = log.segments.active
    has_stale_indexes = active.size_bytes > 0 and not active.has_index_files
    return log.durability.needs_sync or log.producer_state.needs_snapshot or has_stale_indexes
