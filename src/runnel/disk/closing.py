"""Closing logs so cleanly that the next start need not look at their files."""

import logging
from collections.abc import Iterable

from runnel.disk.append_log import AppendLog
from runnel.disk.producers_on_disk import snapshot_path, write_snapshot
from runnel.disk.syncing import SyncJob, begin_sync, finish_sync
from runnel.log.manifest import LogEntry, SegmentEntry
from runnel.log.producer_snapshot import encode_producers
from runnel.model.ids import TopicPartition
from runnel.ports.files import Workers

logger = logging.getLogger(__name__)


def close_logs(logs: Iterable[AppendLog], workers: Workers) -> dict[TopicPartition, LogEntry]:
    """Make all logs durable; the entries of those for which it worked. The others are recovered at start."""
    entries: dict[TopicPartition, LogEntry] = {}
    jobs: list[SyncJob] = []
    for log in logs:
        try:
            if log.failure is None and _has_changed(log):
                jobs.append(begin_sync(log, with_active=True))
            elif log.failure is None:
                entries[log.name] = entry_of(log)
        except OSError as failure:
            logger.warning("%s is not closed cleanly: %s", log.segments.folder, failure)
    outcomes = workers.run_all([_Closing(job).run for job in jobs])
    for job, sealed in zip(jobs, outcomes, strict=True):
        if sealed is True:
            finish_sync(job, sealed=True)
            entries[job.log.name] = entry_of(job.log)
        else:
            logger.warning("%s is not closed cleanly: %s", job.log.segments.folder, sealed)
    return entries


class _Closing:
    """The last sync of one log, with the indexes of its active segment and its producers."""

    def __init__(self, job: SyncJob) -> None:
        self._job = job
        self._snapshot = encode_producers(job.log.producer_state())
        job.log.segments.active.close_time_index()

    def run(self) -> bool:
        log = self._job.log
        segments = log.segments
        if not self._job.run():
            return False
        segments.write_indexes(segments.active, sync=True)
        former = log.loose_snapshot_offset
        if len(log.producer_state()):
            write_snapshot(segments, log.written_offset, self._snapshot)
            log.loose_snapshot_offset = log.written_offset
        segments.files.sync_folder(segments.folder)
        is_loose = all(segment.base_offset != former for segment in segments.segments)
        if 0 <= former != log.loose_snapshot_offset and is_loose:
            segments.files.remove(snapshot_path(segments, former))
        return True


def entry_of(log: AppendLog) -> LogEntry:
    """What a manifest says of a log that is durable as it stands."""
    return LogEntry(
        log.topic_id,
        log.log_start_offset,
        log.loose_snapshot_offset == log.written_offset,
        list(log.epochs.entries),
        [
            SegmentEntry(
                segment.base_offset,
                segment.next_offset,
                segment.size_bytes,
                segment.first_timestamp,
                segment.max_timestamp,
            )
            for segment in log.segments.segments
        ],
    )


def _has_changed(log: AppendLog) -> bool:
    active = log.segments.active
    has_stale_indexes = active.size_bytes > 0 and not active.has_index_files
    return log.needs_sync or log.has_unsaved_producers or has_stale_indexes
