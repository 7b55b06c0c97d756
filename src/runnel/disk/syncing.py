"""Makes a log durable: the files of one sync, and its work in a thread."""

from collections.abc import Callable
from dataclasses import dataclass, field

from runnel.disk.atomic import keep_file
from runnel.disk.disk_log import DiskLog
from runnel.disk.folder_lease import FolderLease
from runnel.disk.producers_on_disk import write_snapshot
from runnel.disk.segment import Segment
from runnel.disk.segments import Segments
from runnel.log.checkpoints import encode_epochs, encode_partition_metadata
from runnel.log.names import EPOCHS, PARTITION_METADATA
from runnel.model.log_config import FOREVER
from runnel.ports.files import File


@dataclass(slots=True)
class SyncJob:
    """The files to sync before `end_offset` is durable."""

    log: DiskLog
    end_offset: int
    closed: list[tuple[Segment, bytes | None, File | None]]
    active: File | None
    epochs: bytes | None
    folder_changed: bool
    is_new: bool
    drops: int
    seconds: Callable[[], float]
    """The monotonic clock."""
    lease: FolderLease
    """Revoked when the log is removed or truncated, because file names may be reused."""
    outcome: bool | OSError | None = None
    """The outcome of `run`, for callers that cannot wait for the callback."""
    has_synced_data: bool = False
    sync_seconds: list[float] = field(default_factory=list)
    """How long each fdatasync took."""
    has_epochs: bool = True
    """False if the leader epochs could not be stored: the data is durable, and recovery reads it again."""

    def run(self) -> bool:
        """In a thread. OSError if the data may not be durable; False if only the files beside it are not."""
        try:
            self.outcome = self._run()
        except OSError as failure:
            self.outcome = failure
            raise
        return self.outcome

    def _run(self) -> bool:
        for _, _, file in self.closed:
            if file is not None:
                self._datasync(file)
        if self.active is not None:
            self._datasync(self.active)
        self.has_synced_data = True
        return self._write_beside(self.log.segments.leased(self.lease))

    def _datasync(self, file: File) -> None:
        began = self.seconds()
        file.datasync()
        self.sync_seconds.append(self.seconds() - began)

    def _write_beside(self, segments: Segments) -> bool:
        files = segments.files
        if self.is_new:
            data = encode_partition_metadata(self.log.topic_id)
            keep_file(files, segments.folder, PARTITION_METADATA, data)
        if self.folder_changed or self.is_new:
            files.sync_folder(segments.folder)
        if self.is_new:
            files.sync_folder(segments.folder.rpartition("/")[0])
        if self.epochs is not None:
            try:
                keep_file(files, segments.folder, EPOCHS, self.epochs)
            except OSError:
                # A full disk must not hide durable records.
                self.has_epochs = False
        return self._seal(segments)

    def _seal(self, segments: Segments) -> bool:
        """Write indexes and snapshots, without which a start would have to check the closed segments."""
        if not self.closed:
            return True
        try:
            for segment, snapshot, _ in self.closed:
                segments.prepare_indexes(segment, sync=True)
                segments.publish_indexes(segment)
                if snapshot is not None:
                    write_snapshot(segments, segment.next_offset, snapshot)
            segments.files.sync_folder(segments.folder)
        except OSError:
            return False
        return True


def begin_sync(log: DiskLog, seconds: Callable[[], float], *, with_active: bool) -> SyncJob:
    """Prepare a sync, on the event loop. `seconds` is the monotonic clock."""
    durability, segments = log.durability, log.segments
    active = segments.active
    closed = [
        (segment, snapshot, segments.open(segment) if segment.size_bytes else None)
        for segment, snapshot in durability.unsealed
    ]
    # An empty active segment may be one that was truncated, which must be durable, too.
    is_there = active.size_bytes > 0 or durability.folder_changed
    job = SyncJob(
        log,
        log.written_offset if with_active else active.base_offset,
        closed,
        segments.open(active, create=True) if with_active and is_there else None,
        encode_epochs(log.epochs.entries) if durability.epochs_changed else None,
        durability.folder_changed,
        durability.is_new,
        durability.drops,
        seconds,
        FolderLease(segments.files),
    )
    durability.epochs_changed = durability.folder_changed = durability.is_new = False
    durability.sync_ceiling = job.end_offset
    return job


def finish_sync(job: SyncJob, sealed: bool) -> None:
    """Complete a sync, on the event loop: advance the durable offset."""
    durability = job.log.durability
    durability.drops_durable = job.drops
    if not job.has_epochs:
        durability.epochs_changed = True
        durability.recovery_ceiling = min(durability.recovery_ceiling, durability.durable_offset)
    elif job.epochs is not None:
        durability.recovery_ceiling = FOREVER
    end_offset = min(job.end_offset, durability.sync_ceiling)
    durability.durable_offset = max(durability.durable_offset, end_offset)
    if sealed and job.closed:
        done = {segment for segment, _, _ in job.closed}
        durability.unsealed = [entry for entry in durability.unsealed if entry[0] not in done]


def return_changes(job: SyncJob) -> None:
    """The sync was interrupted: its files are due again."""
    durability = job.log.durability
    durability.epochs_changed |= job.epochs is not None
    durability.folder_changed |= job.folder_changed
    durability.is_new |= job.is_new


def fail_sync(job: SyncJob, failure: BaseException) -> None:
    """The sync failed: its data may be lost, even if the page cache still has it."""
    log = job.log
    return_changes(job)
    if log.failure is None:
        # Else it was removed or closed meanwhile: to repair it could write into the files of a recreated log.
        log.fail(f"{log.segments.folder} could not be made durable: {failure}", can_repair=True)
