"""Drives the controller core: every change of metadata is a batch in the log `__cluster_metadata-0`.

    decide → replay into the image ahead → append → committed → replay into the image → apply → answer

Changes are decided one after the other, each seeing those before it, but share the fdatasync. Everything else
reads `image`, which only ever holds what is committed: it survives a power failure.

Periodically a thread writes a snapshot of the image beside the log (`metadata_snapshots`), and the log before
it is dropped. Changes do not wait for it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from runnel.batch.build import build_batch
from runnel.batch.header import crc_is_valid, read_header
from runnel.batch.records import Record, iterate_records
from runnel.broker.runtime.metadata_snapshots import MetadataSnapshots
from runnel.broker.runtime.promise import Promise, settled
from runnel.broker.runtime.replicated_log import ReplicatedLog
from runnel.broker.runtime.turn import Turn
from runnel.controller.image import BadMetadata, MetadataImage
from runnel.controller.result import ControllerResult
from runnel.controller.settings import Settings
from runnel.controller.snapshot_batches import metadata_record
from runnel.controller.values import CLUSTER_METADATA, Topic
from runnel.model.errors import ApiError, ErrorCode
from runnel.model.ids import TopicPartition
from runnel.model.log_config import FOREVER, FlushPolicy, LogConfig
from runnel.ports.clock import Clock
from runnel.ports.disk import Disk
from runnel.replica.leader import LeaderReplica
from runnel.schemas.metadata import (
    MetadataRecord,
    RemoveTopicRecord,
    SnapshotRecord,
    encode_metadata_record,
)

log = logging.getLogger("runnel.broker")

METADATA_PARTITION = TopicPartition(CLUSTER_METADATA, 0)
METADATA_TOPIC_ID = bytes(15) + b"\x01"
METADATA_EPOCH = 1
"""A quorum of one elects itself once."""

BATCH_BYTES_MAX = 8 * 1024 * 1024
"""The maximum size of a change, as in Kafka, where it is the fetch size of followers."""
BATCH_OVERHEAD_BYTES = 100
"""An upper bound of the overhead of a batch."""

READ_BYTES = 256 * 1024
"""How much of the log is replayed at start before other tasks run."""

Reply = TypeVar("Reply")


class Follower(Protocol):
    """Applies metadata changes to this node."""

    def apply(self, records: list[MetadataRecord], removed: list[Topic]) -> Iterator[None]:
        """Apply records that were replayed into the image to this node; yields between steps.

        `removed` are the topics that the records removed, as they last were.
        """
        ...


class _Pending:
    """A batch that is in the log and not applied yet; the waiter for its commit."""

    __slots__ = ("_log", "done", "end_offset", "is_committed", "records")

    def __init__(self, log: "MetadataLog", end_offset: int, records: list[MetadataRecord]) -> None:
        self._log = log
        self.end_offset = end_offset
        self.records = records
        self.is_committed = False
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # The caller may have been cancelled; an exception that is not retrieved is not an error of its own.
        self.done.add_done_callback(lambda done: done.cancelled() or done.exception())

    def committed(self) -> None:
        self.is_committed = True
        self._log._committed(self)

    def failed(self, error: ApiError) -> None:
        self._log._fail(str(error))


class _CommitWait(Promise[None]):
    """A promise that everything below an offset is committed."""

    __slots__ = ("end_offset",)

    def __init__(self, end_offset: int) -> None:
        super().__init__()
        self.end_offset = end_offset

    def committed(self) -> None:
        self.resolve(None)

    def failed(self, error: ApiError) -> None:
        self.fail(error)


class MetadataLog:
    """Cluster metadata: `image` to read, `change` to decide against it, `submit` to add records outright."""

    def __init__(self, disk: Disk, clock: Clock, settings: Settings, turn: Turn, node_id: int) -> None:
        self._clock = clock
        self.settings = settings
        self.log = disk.open_log(METADATA_PARTITION, METADATA_TOPIC_ID, _log_config(settings))
        self.image = MetadataImage()
        self.removed: set[str] = set()
        """Topics whose deletion was replayed at start: their logs may still exist."""
        if self.log.failure is not None:
            # The records before the damage are incomplete: to apply them could remove what was created later.
            raise BadMetadata(f"the metadata log is damaged: {self.log.failure}")
        leader = LeaderReplica.sole(node_id, METADATA_EPOCH)
        self._replicated = ReplicatedLog(
            METADATA_PARTITION, METADATA_TOPIC_ID, self.log, leader, turn, disk, clock
        )
        self._snapshots = MetadataSnapshots(disk, METADATA_PARTITION, self.log, settings)
        self._batch_bytes_max = min(BATCH_BYTES_MAX, self.log.config.segment_bytes) - BATCH_OVERHEAD_BYTES
        self._ahead = self.image
        self._pending: deque[_Pending] = deque()
        self._to_apply: deque[_Pending] = deque()
        self._applying: asyncio.Task[None] | None = None
        self._failure: str | None = None
        self._follower: Follower | None = None

    @classmethod
    async def open(
        cls, disk: Disk, clock: Clock, settings: Settings, turn: Turn, node_id: int
    ) -> "MetadataLog":
        """Open the log, and load the newest snapshot and what follows it. BadMetadata if it is unreadable."""
        metadata = cls(disk, clock, settings, turn, node_id)
        await metadata._load()
        metadata._ahead = metadata.image.copy()
        return metadata

    @property
    def is_new(self) -> bool:
        """Is the log empty?"""
        return self.log.end_offset == 0

    @property
    def committed_offset(self) -> int:
        """Everything below is in the image and survives a power failure."""
        return self.image.version

    def follow(self, follower: Follower) -> None:
        """Apply every change from now on to the node through `follower`."""
        self._follower = follower

    async def submit(self, records: list[MetadataRecord]) -> None:
        """Add records; returns when they are committed, in the image and applied."""
        await self.change(lambda _: ControllerResult(records, None))

    async def change(self, decide: Callable[[MetadataImage], ControllerResult[Reply]]) -> Reply:
        """Decide against the newest image and carry it out; the reply comes when the decision is committed.

        Raises what `decide` raises, POLICY_VIOLATION for more records than one batch can hold,
        KAFKA_STORAGE_ERROR if they cannot be written, and BadMetadata if they cannot be replayed.
        """
        self._check_usable()
        decision = decide(self._ahead)
        if decision.records:
            pending = self._append(decision.records)
        elif self._pending:
            # The response may depend on a change that is not durable yet: it must not be sent before that is.
            pending = self._pending[-1]
        else:
            return decision.response
        await asyncio.shield(pending.done)
        return decision.response

    async def close(self) -> None:
        """Wait for changes and snapshots in flight."""
        if self._applying is not None:
            await self._applying
        await self._snapshots.close()

    async def make_durable(self) -> None:
        """Commit what a crashed process had written but not synced."""
        wait = _CommitWait(self.log.written_offset)
        self._replicated.when_committed(wait)
        await settled(wait)

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"the metadata log cannot be written until the broker is restarted: {self._failure}",
            )

    def _append(self, records: list[MetadataRecord]) -> _Pending:
        values = [encode_metadata_record(record) for record in records]
        now_ms = self._clock.now_ms()
        batch = build_batch(Record(0, now_ms, None, value) for value in values)
        if len(batch) > self._batch_bytes_max:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"this change takes {len(batch)} bytes of metadata, a batch holds {self._batch_bytes_max} "
                "(metadata.log.segment.bytes): make it in several requests",
            )
        end_offset = self.log.end_offset + len(records)
        try:
            # First, because no start could replay a log with records that contradict those before them.
            self._ahead.replay_batch(records, end_offset)
            self._replicated.append_now(batch)
        except Exception:
            self._ahead = self._image_with_pending()
            raise
        self._snapshots.appended(len(values), len(batch))
        pending = _Pending(self, end_offset, records)
        self._pending.append(pending)
        self._replicated.when_committed(pending)
        return pending

    def _image_with_pending(self) -> MetadataImage:
        """The image after all records that are in the log."""
        image = self.image.copy()
        for pending in self._pending:
            if pending.end_offset > image.version:
                image.replay_batch(pending.records, pending.end_offset)
        return image

    def _committed(self, pending: _Pending) -> None:
        self._to_apply.append(pending)
        if self._applying is None:
            self._applying = asyncio.get_running_loop().create_task(self._apply_committed())

    async def _apply_committed(self) -> None:
        try:
            while self._to_apply:
                await self._apply(self._to_apply.popleft())
            # All committed changes are applied, so no change that the snapshot replaces is pending.
            self._snapshots.write_if_due(self.image, self._clock.now_ms(), METADATA_EPOCH)
        except Exception:
            # A bug, which is logged; the callers must not wait forever.
            for pending in self._pending:
                pending.is_committed = False
            self._fail("a change could not be applied")
            raise
        finally:
            self._applying = None

    async def _apply(self, pending: _Pending) -> None:
        removed = [
            self.image.topics_by_id[record.topic_id]
            for record in pending.records
            if type(record) is RemoveTopicRecord
        ]
        self.image.replay_batch(pending.records, pending.end_offset)
        if self._follower is not None:
            for _ in self._follower.apply(pending.records, removed):
                await asyncio.sleep(0)
        self._pending.remove(pending)
        if not pending.done.done():
            pending.done.set_result(None)

    def _fail(self, reason: str) -> None:
        # Which of the written records survive is unknown, and a later fdatasync would not show it. Nothing
        # more is written after them; a restart determines it by reading.
        if self._failure is None:
            log.error("the metadata log takes no more changes until the broker is restarted: %s", reason)
            self._failure = reason
        for pending in self._pending:
            if not pending.is_committed and not pending.done.done():
                pending.done.set_exception(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, reason))

    async def _load(self) -> None:
        self.image = await self._snapshots.load()
        offset = max(self.image.version, self.log.log_start_offset)
        needs_snapshot = self.image.version == 0 and offset > 0
        lost = BadMetadata(f"the metadata log begins at offset {offset}, and no snapshot has what was before")
        while offset < self.log.written_offset:
            for batch in await settled(self._replicated.read_batches(offset, READ_BYTES)):
                if not crc_is_valid(batch, 0, read_header(batch)):
                    raise BadMetadata(f"the batch at offset {offset} of the metadata log is corrupt")
                records = [metadata_record(stored.value) for stored in iterate_records(batch)]
                end_offset = offset + len(records)
                if needs_snapshot and type(records[0]) is not SnapshotRecord:
                    raise lost
                needs_snapshot = False
                self._replay(records, len(batch), end_offset)
                offset = end_offset
            await asyncio.sleep(0)
        if needs_snapshot:
            raise lost
        self.removed -= self.image.topics.keys()

    def _replay(self, records: list[MetadataRecord], size_bytes: int, end_offset: int) -> None:
        for record in records:
            if type(record) is RemoveTopicRecord and record.topic_id in self.image.topics_by_id:
                self.removed.add(self.image.topics_by_id[record.topic_id].name)
        # Earlier releases stored snapshots in the log, as a batch that begins with a SnapshotRecord.
        self._snapshots.appended(len(records), size_bytes)
        self.image.replay_batch(records, end_offset)


def _log_config(settings: Settings) -> LogConfig:
    # Only snapshots shorten this log. What is committed is durable.
    return LogConfig(
        segment_bytes=settings.int("metadata.log.segment.bytes"),
        segment_ms=FOREVER,
        retention_ms=-1,
        retention_bytes=-1,
        max_message_bytes=2**31 - 1,
        flush_policy=FlushPolicy.COMMIT,
    )
