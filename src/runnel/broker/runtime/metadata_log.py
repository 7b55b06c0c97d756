"""Drives the controller core: every change of metadata is a batch in the log `__cluster_metadata-0`.

    decide (against the image ahead) → write → fdatasync → replay into the image → apply to the node → answer

Changes are decided one after the other, each seeing those before it, but share the fdatasync. Everybody else
reads `image`, which only ever holds what survives a power cut.

Now and then the whole image is written again as one batch that begins with a SnapshotRecord, and the log
before it is dropped. A batch counts as a whole or not at all, so a crash leaves the old beginning or the new.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, TypeVar

from runnel.batch.build import build_batch
from runnel.batch.records import Record, iterate_records
from runnel.controller.image import BadMetadata, MetadataImage
from runnel.controller.result import ControllerResult
from runnel.controller.settings import Settings
from runnel.controller.snapshot import records_of
from runnel.controller.values import CLUSTER_METADATA, Topic
from runnel.model.errors import ApiError, ErrorCode, StorageFailed
from runnel.model.ids import TopicPartition
from runnel.model.log_config import FOREVER, LogConfig
from runnel.ports.clock import Clock
from runnel.ports.disk import Disk, Origin
from runnel.schemas.metadata import (
    MetadataRecord,
    RemoveTopicRecord,
    SnapshotRecord,
    decode_metadata_record,
    encode_metadata_record,
)

log = logging.getLogger("runnel.broker")

METADATA_PARTITION = TopicPartition(CLUSTER_METADATA, 0)
METADATA_TOPIC_ID = bytes(15) + b"\x01"
METADATA_EPOCH = 1
"""A quorum of one elects itself once."""

BATCH_BYTES_MAX = 2**31 - 1
SNAPSHOT_RECORDS_MIN = 10_000
"""Fewer records than this are replayed in a tenth of a second, so writing the image anew is not worth it."""

RECORDS_PER_STEP = 500
"""How much of a snapshot is encoded before requests get their turn."""

Reply = TypeVar("Reply")


class Follower(Protocol):
    """What must happen on this node when metadata has changed."""

    def apply(self, records: list[MetadataRecord], removed: list[Topic]) -> Iterator[None]:
        """Bring the node in line with records that the image just took in; yields where requests may go on.

        `removed` are the topics that the records removed, as they last were.
        """
        ...


@dataclass(slots=True, eq=False)
class _Pending:
    """A batch that is in the log but may not be on the disk yet."""

    end_offset: int
    records: list[MetadataRecord]
    done: "asyncio.Future[None]"


class MetadataLog:
    """Cluster metadata: `image` to read, `change` to decide against it, `submit` to add records outright."""

    def __init__(self, disk: Disk, clock: Clock, settings: Settings) -> None:
        """Open and replay the log. BadMetadata if it cannot be read as one."""
        self._disk = disk
        self._clock = clock
        self.settings = settings
        self.log = disk.open_log(METADATA_PARTITION, METADATA_TOPIC_ID, _log_config(settings))
        self.image = MetadataImage()
        self.removed: set[str] = set()
        """Topics whose removal was replayed at start: their logs may have outlived them."""
        if self.log.failure is not None:
            # What stands before the damage is not all: to act on it could remove what was made later.
            raise BadMetadata(f"the metadata log is damaged: {self.log.failure}")
        self._snapshot_records = 0
        self._records_since_snapshot = 0
        self._bytes_since_snapshot = 0
        self._load()
        self._ahead = self.image.copy()
        self._pending: deque[_Pending] = deque()
        self._committing: asyncio.Task[None] | None = None
        self._snapshot_written: asyncio.Future[None] | None = None
        self._failure: str | None = None
        self._follower: Follower | None = None

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever written here."""
        return self.log.end_offset == 0

    @property
    def committed_offset(self) -> int:
        """Everything below is in the image and survives a power cut."""
        return self.image.version

    def follow(self, follower: Follower) -> None:
        """Who brings the node in line with every change from now on."""
        self._follower = follower

    async def submit(self, records: list[MetadataRecord]) -> None:
        """Add records; returns when they are durable, in the image and applied."""
        await self.change(lambda _: ControllerResult(records, None))

    async def change(self, decide: Callable[[MetadataImage], ControllerResult[Reply]]) -> Reply:
        """Decide against the newest image and carry it out; the reply comes when the decision is durable.

        Raises what `decide` raises, and KAFKA_STORAGE_ERROR if the disk would not take the records.
        """
        while self._snapshot_written is not None:
            await asyncio.shield(self._snapshot_written)
        self._check_usable()
        decision = decide(self._ahead)
        if decision.records:
            pending = self._append(decision.records)
        elif self._pending:
            # The answer may rest on a change that is not durable yet: it must not be known before that is.
            pending = self._pending[-1]
        else:
            return decision.response
        await asyncio.shield(pending.done)
        return decision.response

    async def close(self) -> None:
        """Let what is under way finish."""
        if self._committing is not None:
            await self._committing

    async def make_durable(self) -> None:
        """Force to the disk what a crashed process had only written: from now on it will be acted on."""
        if self.log.durable_offset < self.log.written_offset:
            await self._disk.sync(self.log)

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"the metadata log cannot be written until the broker is restarted: {self._failure}",
            )

    def _append(self, records: list[MetadataRecord]) -> _Pending:
        values = [encode_metadata_record(record) for record in records]
        end_offset = self._write(values)
        self._ahead.replay_batch(records, end_offset)
        pending = _Pending(end_offset, records, asyncio.get_running_loop().create_future())
        # Whoever asked may have gone away; an outcome that nobody looks at is not an error of its own.
        pending.done.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._pending.append(pending)
        if self._committing is None:
            self._committing = asyncio.create_task(self._commit())
        return pending

    def _write(self, values: list[bytes]) -> int:
        """One batch into the file, not yet durable; the offset behind it."""
        now_ms = self._clock.now_ms()
        batch = build_batch(Record(0, now_ms, None, value) for value in values)
        staged = self.log.stage(memoryview(batch), METADATA_EPOCH, now_ms, Origin.COORDINATOR)
        self.log.write_staged()
        self._records_since_snapshot += len(values)
        self._bytes_since_snapshot += len(batch)
        return staged.last_offset + 1

    async def _commit(self) -> None:
        try:
            while self._pending:
                durable_offset = await self._disk.sync(self.log)
                while self._pending and self._pending[0].end_offset <= durable_offset:
                    await self._commit_one(self._pending[0])
                    self._pending.popleft()
                if not self._pending and self._is_snapshot_due():
                    await self._write_snapshot()
        except (ApiError, OSError) as error:
            # Which of the written records survive is unknown, and a later fdatasync would not tell: nothing
            # more is written behind them. A restart finds out by reading.
            self._fail(str(error))
        except Exception:
            # A bug, which is logged; whoever waits must not wait for ever.
            self._fail("a change could not be applied")
            raise
        finally:
            self._committing = None

    def _fail(self, reason: str) -> None:
        log.error("the metadata log takes no more changes until the broker is restarted: %s", reason)
        self._failure = reason
        while self._pending:
            done = self._pending.popleft().done
            if not done.done():
                done.set_exception(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, reason))

    async def _commit_one(self, pending: _Pending) -> None:
        removed = [
            self.image.topics_by_id[record.topic_id]
            for record in pending.records
            if type(record) is RemoveTopicRecord
        ]
        self.image.replay_batch(pending.records, pending.end_offset)
        if self._follower is not None:
            for _ in self._follower.apply(pending.records, removed):
                await asyncio.sleep(0)
        if not pending.done.done():
            pending.done.set_result(None)

    def _is_snapshot_due(self) -> bool:
        # At least twice what the last one took, so that snapshots cost no more than what they stand for.
        return self._records_since_snapshot > max(SNAPSHOT_RECORDS_MIN, 2 * self._snapshot_records) or (
            self._bytes_since_snapshot > self.settings.int("metadata.log.max.record.bytes.between.snapshots")
        )

    async def _write_snapshot(self) -> None:
        """Write the image as one batch and drop what came before. Changes wait: the image stands still."""
        self._snapshot_written = asyncio.get_running_loop().create_future()
        try:
            values = [encode_metadata_record(SnapshotRecord(self._clock.now_ms()))]
            for record in records_of(self.image):
                values.append(encode_metadata_record(record))
                if len(values) % RECORDS_PER_STEP == 0:
                    await asyncio.sleep(0)
            base_offset = self.log.end_offset
            try:
                end_offset = self._write(values)
            except StorageFailed:
                # No room: the log is longer than it need be, and nothing worse. It is tried again later.
                return
            self.log.advance_high_watermark(await self._disk.sync(self.log))
            self._snapshot_records = len(values)
            self.image.version = self._ahead.version = end_offset
            with suppress(StorageFailed):
                self.log.delete_records_before(base_offset)
        finally:
            self._records_since_snapshot = self._bytes_since_snapshot = 0
            self._snapshot_written.set_result(None)
            self._snapshot_written = None

    def _load(self) -> None:
        for batch in self.log.batches(self.log.log_start_offset, self.log.end_offset):
            records: list[MetadataRecord] = []
            version = 0
            for stored in iterate_records(batch):
                assert stored.value is not None
                record = decode_metadata_record(stored.value)
                if not isinstance(record, MetadataRecord):
                    raise BadMetadata(f"the metadata log was written by a newer release: {record}")
                records.append(record)
                version = stored.offset + 1
            self._note(records, len(batch))
            self.image.replay_batch(records, version)
        self.removed -= self.image.topics.keys()

    def _note(self, records: list[MetadataRecord], size_bytes: int) -> None:
        if type(records[0]) is SnapshotRecord:
            self._snapshot_records = len(records)
            self._records_since_snapshot = self._bytes_since_snapshot = 0
            return
        self._records_since_snapshot += len(records)
        self._bytes_since_snapshot += size_bytes
        for record in records:
            if type(record) is RemoveTopicRecord and record.topic_id in self.image.topics_by_id:
                self.removed.add(self.image.topics_by_id[record.topic_id].name)


def _log_config(settings: Settings) -> LogConfig:
    # Only snapshots shorten this log. It is forced to the disk by whoever waits for it.
    return LogConfig(
        segment_bytes=settings.int("metadata.log.segment.bytes"),
        segment_ms=FOREVER,
        retention_ms=-1,
        retention_bytes=-1,
        max_message_bytes=BATCH_BYTES_MAX,
    )
