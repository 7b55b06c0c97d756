"""Snapshots of the metadata image: when one is due, writing it in a thread, and loading the newest at start.

    image frozen on the event loop → written by a thread, durable → the log begins there → older ones removed

A crash at any of these steps leaves a complete snapshot and all of the log that follows it.
"""

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from runnel.batch.errors import CorruptBatch
from runnel.broker.runtime.blocking import Job
from runnel.broker.runtime.promise import Promise, settled
from runnel.controller.image import BadMetadata, MetadataImage
from runnel.controller.settings import Settings
from runnel.controller.snapshot_batches import read_snapshot, snapshot_batches
from runnel.model.errors import ApiError, StorageFailed
from runnel.model.ids import SnapshotId
from runnel.ports.disk import Disk
from runnel.raft.control import snapshot_header
from runnel.wire import MalformedMessage

if TYPE_CHECKING:
    from runnel.broker.runtime.quorum_log import QuorumLog

log = logging.getLogger("runnel.broker")

SNAPSHOT_RECORDS_MIN = 10_000
"""Fewer records than this are replayed in a tenth of a second: a snapshot would save nothing."""


class MetadataSnapshots:
    """The snapshots beside the metadata log."""

    def __init__(self, disk: Disk, quorum: "QuorumLog", settings: Settings) -> None:
        self._disk = disk
        self._quorum = quorum
        self._store = quorum.snapshots
        self._log = quorum.log
        self._settings = settings
        self._is_required = False
        self._snapshot_records = 0
        """The approximate number of records of the last snapshot."""
        self._records_since = 0
        self._bytes_since = 0
        self._writing: asyncio.Task[None] | None = None

    def appended(self, records: int, size_bytes: int) -> None:
        """Count the records that are in the log and in no snapshot."""
        self._records_since += records
        self._bytes_since += size_bytes

    def require(self) -> None:
        """Replace the log by a snapshot at the next opportunity, however little has changed."""
        self._is_required = True

    def write_if_due(self, image: MetadataImage, timestamp_ms: int) -> None:
        """Start to write a snapshot of this image if enough has changed since the last one."""
        if self._writing is None and self._is_due():
            self._records_since = self._bytes_since = 0
            snapshot = self._quorum.snapshot_id(image.version)
            work = self._write(snapshot, image.frozen(), timestamp_ms, replaces_log=self._is_required)
            self._is_required = False
            self._writing = asyncio.get_running_loop().create_task(work)

    async def close(self) -> None:
        """Wait for a snapshot that is being written."""
        if self._writing is not None:
            await self._writing

    async def load(self) -> MetadataImage:
        """The image of the newest complete snapshot that the log continues; an empty one if there is none.

        Raises BadMetadata if the log continues none of them, or ends before one; StorageFailed if the disk
        cannot be read.
        """
        failure: Exception | None = None
        for snapshot in self._store.ids():
            if snapshot.end_offset < self._log.log_start_offset:
                break
            if snapshot.end_offset > self._log.written_offset:
                # Its records were committed, and an older image would revert them.
                raise BadMetadata(f"the metadata log ends before its snapshot at {snapshot.end_offset}")
            try:
                image = await self._disk.run_blocking(Job(partial(self._read, snapshot)))
            except (BadMetadata, CorruptBatch, MalformedMessage, StorageFailed) as error:
                log.error("the metadata snapshot at %d cannot be used: %s", snapshot.end_offset, error)
                failure = error
            else:
                self._snapshot_records = len(image.topics) + image.partition_count
                return image
        if failure is not None and self._log.log_start_offset > 0:
            if isinstance(failure, StorageFailed):
                raise failure
            raise BadMetadata(f"no metadata snapshot can be used: {failure}") from failure
        return MetadataImage()

    def _read(self, snapshot: SnapshotId) -> MetadataImage:
        """In a thread."""
        image = MetadataImage()
        for records in read_snapshot(self._store.read(snapshot)):
            image.replay_batch(records, snapshot.end_offset)
        image.version = snapshot.end_offset
        return image

    def _is_due(self) -> bool:
        # At least twice what the last one took, so that snapshots cost less than the changes they replace.
        return (
            self._is_required
            or self._records_since > max(SNAPSHOT_RECORDS_MIN, 2 * self._snapshot_records)
            or self._bytes_since > self._settings.int("metadata.log.max.record.bytes.between.snapshots")
        )

    async def _write(
        self, snapshot: SnapshotId, image: MetadataImage, timestamp_ms: int, *, replaces_log: bool
    ) -> None:
        try:
            kraft_version, voters = self._quorum.voters_at(snapshot.end_offset)
            header = snapshot_header(timestamp_ms, snapshot.epoch, kraft_version, voters)
            batches = snapshot_batches(image, timestamp_ms, snapshot.epoch, header)
            await self._disk.run_blocking(Job(lambda: self._store.write(snapshot, batches)))
            self._snapshot_records = len(image.topics) + image.partition_count
            self._quorum.snapshot_written(snapshot)
            if replaces_log:
                await self._drop_log_before(snapshot.end_offset)
        except ApiError as error:
            # For example a full disk. The only effect is a longer log.
            log.warning("the metadata snapshot at %d is not stored: %s", snapshot.end_offset, error)
        finally:
            self._writing = None

    async def _drop_log_before(self, offset: int) -> None:
        dropped: Promise[None] = Promise()
        self._log.delete_records_before(
            offset, lambda error: dropped.resolve(None) if error is None else dropped.fail(error)
        )
        await settled(dropped)
