"""Cluster metadata on this node: the image of what the quorum has committed.

    the quorum commits → read or take the batch → replay into the image → apply to this node → answer

On every node, brokers included, the image follows the log of the quorum. On the node that leads the quorum an
ActiveController decides about changes. Periodically a thread writes a snapshot of the image beside the log
(`metadata_snapshots`), and the log before it is dropped.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from runnel.batch.errors import CorruptBatch
from runnel.batch.header import crc_is_valid, read_header
from runnel.batch.records import iterate_records
from runnel.broker.runtime.active_controller import ActiveController, Decide, Reply
from runnel.broker.runtime.metadata_snapshots import MetadataSnapshots
from runnel.broker.runtime.promise import settled
from runnel.controller.image import BadMetadata, MetadataImage
from runnel.controller.result import ControllerResult
from runnel.controller.settings import Settings
from runnel.controller.snapshot_batches import metadata_record
from runnel.controller.steps import Steps
from runnel.controller.transactions import OpenTransaction
from runnel.controller.values import Topic
from runnel.model.errors import ApiError, ErrorCode, NotController, StorageFailed
from runnel.model.ids import SnapshotId
from runnel.observe.counters import EventCounts
from runnel.ports.clock import Clock
from runnel.ports.disk import Disk
from runnel.schemas.metadata import (
    ClientQuotaRecord,
    ClusterRecord,
    MetadataRecord,
    RemoveTopicRecord,
    SnapshotRecord,
)
from runnel.security.acl import AccessControlEntry
from runnel.wire import MalformedMessage

if TYPE_CHECKING:
    from runnel.broker.runtime.quorum_log import QuorumLog

log = logging.getLogger("runnel.broker")

PRIVATE_RECORDS = (ClusterRecord, SnapshotRecord)
"""Written by releases before the quorum only; Kafka does not know them."""

READ_BYTES = 256 * 1024
"""How much of the log is replayed before other tasks run."""

RECORDS_AT_ONCE = 1000
"""How many records of this node's own decisions are replayed before other tasks run."""

RETRY_DELAY_MS = 200
FAILURES_MAX = 50
"""After this many failures of the disk in a row, the metadata of this node is no longer updated."""


class _Retried(Exception):
    """A failure of the disk that may be temporary, and has changed nothing."""


class Follower(Protocol):
    """Applies metadata changes to this node."""

    def open_all(self) -> Iterator[None]:
        """Apply the whole image at start; yields between steps."""
        ...

    def reload(self) -> Iterator[None]:
        """Apply the image after it was replaced as a whole; yields between steps."""
        ...

    def apply(self, records: list[MetadataRecord], removed: list[Topic]) -> Iterator[None]:
        """Apply records that were replayed into the image to this node; yields between steps.

        `removed` are the topics that the records removed, as they last were.
        """
        ...


class AclWatcher(Protocol):
    """Is informed of changes to ACLs, on controllers as well."""

    def loaded(self) -> None:
        """The image has caught up with the quorum."""
        ...

    def replayed(self, records: list[MetadataRecord]) -> None:
        """Records were replayed into the image."""
        ...

    def replace(self, acls: Mapping[bytes, AccessControlEntry]) -> Iterator[None]:
        """The image is about to be replaced by one with these ACLs; yields between steps."""
        ...


class MetadataLog:
    """Cluster metadata: `image` to read, `change` to decide about it on the active controller."""

    def __init__(self, quorum: "QuorumLog", disk: Disk, clock: Clock, settings: Settings) -> None:
        self.quorum = quorum
        self.clock = clock
        self.settings = settings
        self.image = MetadataImage()
        self.removed: set[str] = set()
        """Topics whose deletion was replayed before a follower was attached: their logs may still exist."""
        self.controller: ActiveController | None = None
        """The decisions of this node, if it is the active controller."""
        self.on_elected: Callable[[int], None] = lambda predecessor_id: None
        """Called when this node becomes the active controller, with the last leader before it, or -1."""
        self.on_resigned: Callable[[], None] = lambda: None
        """Called when it no longer is."""
        self.on_quotas_changed: Callable[[], None] = lambda: None
        """Called when client quotas in the image may have changed."""
        self.events = EventCounts()
        """Where elections are counted."""
        self._leaderless_ms: int | None = None
        """Since when the quorum has no leader that is known here, after it had one."""
        self._had_leader = False
        self._elected_epoch = -1
        self._predecessor_id = -1
        self._snapshots = MetadataSnapshots(disk, quorum, settings)
        self._transaction = OpenTransaction()
        self._has_private_records = False
        self._failures = 0
        self._applied_at_once = 0
        """Failures of the disk in a row."""
        self._failure: str | None = None
        """Why the image is no longer updated."""
        self.is_unreadable = False
        """Is that because the metadata on this node is damaged? Other nodes can probably read theirs."""
        self._follower: Follower | None = None
        self._acl_watcher: AclWatcher | None = None
        self._applying: asyncio.Task[None] | None = None
        self._is_paused = False
        self._changed = asyncio.Event()
        """Set whenever the image, the leader or the committed offset changed."""

    async def load(self) -> None:
        """Load the newest snapshot. BadMetadata if it is unreadable."""
        try:
            self.image = await self._snapshots.load()
        except StorageFailed as error:
            raise BadMetadata(f"no metadata snapshot can be used: {error}") from error
        if self.image.version < self.quorum.log.log_start_offset:
            raise self._lost()

    # -- the active controller

    @property
    def is_active(self) -> bool:
        """Does this node decide about metadata?"""
        return self.controller is not None

    @property
    def is_sole_voter(self) -> bool:
        """Is there no other controller?"""
        return self.quorum.voters.ids == [self.quorum.core.node.id]

    @property
    def has_open_transaction(self) -> bool:
        """Did a controller begin a change that it has not ended?"""
        return self._transaction.is_open

    def controller_endpoint(self) -> tuple[int, str, int] | None:
        """(node id, host, port) of the active controller, if it is known."""
        return self.quorum.leader_endpoint()

    async def submit(self, records: list[MetadataRecord]) -> None:
        """Add records; returns when they are committed, in the image and applied."""
        await self.change(lambda _: ControllerResult(records, None))

    async def change(self, decide: Decide[Reply]) -> Reply:
        """Decide about a change and carry it out, see `ActiveController.change`."""
        return await self._active().change(decide)

    async def change_in_steps(self, begin: "Callable[[MetadataImage], Steps[Reply]]") -> Reply:
        """Carry out a decision over many partitions, see `ActiveController.change_in_steps`."""
        return await self._active().change_in_steps(begin)

    def read_ahead(self, read: Callable[[MetadataImage, MetadataImage], Reply]) -> Reply:
        """What `read` returns for the committed image, and the one after all changes in flight."""
        return read(self.image, self._active().image)

    def _active(self) -> ActiveController:
        if self._failure is not None:
            raise self._unusable()
        if self.controller is None:
            raise self._not_controller("this node is not the active controller")
        return self.controller

    def _not_controller(self, reason: str) -> Exception:
        if self.is_sole_voter:
            # It leads as soon as it can write again; no other node can be asked.
            return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the metadata log cannot be written")
        return NotController(reason)

    # -- what the quorum reports

    def advanced(self, high_watermark: int) -> None:
        """Everything below is committed."""
        self._apply_soon()

    def elected(self, epoch: int) -> None:
        """This node leads, and all records before its own are committed: decide once they are applied."""
        self._elected_epoch = epoch
        if self._failure is not None:
            self._leave_to_others()
        self._apply_soon()

    def leader_changed(self, leader_id: int, epoch: int) -> None:
        """Another node leads, or none, or this node in a new epoch."""
        self._time_election(leader_id)
        if leader_id >= 0 and not self.quorum.is_leader:
            self._predecessor_id = leader_id
        if self.controller is not None and not self._leads(self.controller.epoch):
            self._end_decisions(self._not_controller(f"this node no longer leads in epoch {epoch}"))
        self._apply_soon()

    def _time_election(self, leader_id: int) -> None:
        now_ms = self.clock.monotonic_ms()
        if leader_id < 0:
            if self._had_leader and self._leaderless_ms is None:
                self._leaderless_ms = now_ms
        elif self._leaderless_ms is not None:
            self.events.controller_elections.add((now_ms - self._leaderless_ms) / 1000)
            self._leaderless_ms = None
        self._had_leader |= leader_id >= 0

    @property
    def failure(self) -> str | None:
        """Why the image is no longer updated; None if it is."""
        return self._failure

    def snapshot_installed(self, snapshot: SnapshotId) -> None:
        """The log was replaced by a snapshot of the leader: load it."""
        self._apply_soon()

    # -- the image follows

    @property
    def committed_offset(self) -> int:
        """Everything below is in the image."""
        return self.image.version

    async def watch_acls(self, watcher: AclWatcher) -> None:
        """Inform an authorizer of all ACLs, and of every change from now on."""
        self._acl_watcher = watcher
        await self._replace_acls(self.image)

    def acls_loaded(self) -> None:
        """The image has caught up with the quorum: its ACLs apply."""
        if self._acl_watcher is not None:
            self._acl_watcher.loaded()

    async def follow(self, follower: Follower) -> None:
        """Apply the image to the node through `follower`, and every change from now on."""
        self._is_paused = True
        if self._applying is not None:
            await self._applying
        self._follower = follower
        for _ in follower.open_all():
            await asyncio.sleep(0)
        self._is_paused = False
        self._apply_soon()

    def replace_private_records(self) -> None:
        """Replace a log with records that only earlier releases wrote by a snapshot; Kafka cannot read them.

        The cluster id, which is in one of them, must be stored in the data directory before.
        """
        if self._has_private_records:
            self._has_private_records = False
            self._snapshots.require()
            self._apply_soon()

    async def changed(self) -> None:
        """Wait for the next change of the image, the leader or the committed offset."""
        await self._changed.wait()

    async def wait_for(self, offset: int, timeout_ms: int) -> bool:
        """Wait until everything below `offset` is applied; False if that takes longer than the timeout."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while self.image.version < offset:
                    await self.changed()
        except TimeoutError:
            return False
        return True

    async def caught_up(self) -> None:
        """Wait until a leader is known, and what was committed then is applied."""
        # The high watermark of an earlier run is not enough: others may have committed more since.
        while not self.is_active and not self._knows_committed:
            self._check_usable()
            await self.changed()
        committed = self.quorum.high_watermark
        while self.image.version < committed:
            self._check_usable()
            await self.changed()

    @property
    def _knows_committed(self) -> bool:
        if self.is_sole_voter:
            # It cannot write, perhaps because the disk is full: what it has is all there is.
            return self.quorum.is_unwritable
        return self.quorum.core.has_fetched and self.quorum.high_watermark > 0

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise BadMetadata(self._failure)

    async def close(self) -> None:
        """Wait for what is being applied and for a snapshot; changes that are not committed fail."""
        self._is_paused = True
        if self._applying is not None:
            await self._applying
        if self.controller is not None:
            self.controller.resign(NotController("this node is stopping"))
        await self._snapshots.close()

    def _notify(self) -> None:
        # Wakes all that wait, and only them.
        self._changed.set()
        self._changed = asyncio.Event()

    def _apply_soon(self) -> None:
        self._notify()
        if self._applying is None and not self._is_paused and self._failure is None:
            self._applying = asyncio.get_running_loop().create_task(self._apply_committed())

    async def _apply_committed(self) -> None:
        try:
            while not self._is_paused and self._has_more:
                try:
                    await self._apply_more()
                except _Retried as failure:
                    await self._failed_once(failure)
                else:
                    self._failures = 0
            if not self._is_paused:
                self._write_snapshot_if_due()
        except (BadMetadata, CorruptBatch, MalformedMessage, ApiError) as error:
            # Later records cannot be applied without this one: the node keeps what it has.
            self.is_unreadable = True
            self._fail(f"metadata at offset {self.image.version} cannot be applied: {error}")
        except Exception:
            # A bug, which is logged; callers must not wait forever.
            self._fail(f"metadata at offset {self.image.version} cannot be applied")
            raise
        finally:
            self._applying = None
            self._notify()

    @property
    def _has_more(self) -> bool:
        """Is more committed, or is this node to decide about metadata now that it has applied all?"""
        is_new_leader = self.controller is None and self._leads(self._elected_epoch)
        return self.image.version < self.quorum.high_watermark or is_new_leader

    async def _apply_more(self) -> None:
        if self.image.version >= self.quorum.high_watermark:
            self._take_over()
        elif self.image.version < self.quorum.log.log_start_offset:
            await self._load_installed()
        else:
            await self._apply_next()

    async def _apply_next(self) -> None:
        own = self.controller.records_at(self.image.version) if self.controller else None
        if own is not None:
            await self._apply(own.records, own.end_offset, own.size_bytes)
            self._applied_at_once += len(own.records)
            if self._applied_at_once > RECORDS_AT_ONCE:
                self._applied_at_once = 0
                await asyncio.sleep(0)
            return
        for batch in await self._read_next():
            header = read_header(batch)
            if header.next_offset > self.quorum.high_watermark:
                return
            if header.next_offset <= self.image.version:
                continue
            if not crc_is_valid(batch, 0, header):
                raise BadMetadata(f"the batch at offset {header.base_offset} of the metadata log is corrupt")
            records: list[MetadataRecord] = []
            if not header.is_control:
                records = [metadata_record(stored.value) for stored in iterate_records(batch)]
            await self._apply(records, header.next_offset, len(batch))
        await asyncio.sleep(0)

    async def _read_next(self) -> Sequence[memoryview]:
        try:
            return await settled(self.quorum.read_batches(self.image.version, READ_BYTES))
        except StorageFailed as error:
            if isinstance(error.__cause__, CorruptBatch):
                raise
            raise _Retried(str(error)) from error
        except ApiError:
            if self.image.version < self.quorum.log.log_start_offset:
                # Meanwhile a snapshot of the leader has replaced the log.
                return []
            raise

    async def _apply(self, records: list[MetadataRecord], end_offset: int, size_bytes: int) -> None:
        self._snapshots.appended(len(records), size_bytes)
        self._has_private_records |= any(type(record) in PRIVATE_RECORDS for record in records)
        published = self._transaction.published(records)
        removed = [
            self.image.topics_by_id[record.topic_id]
            for record in published
            if type(record) is RemoveTopicRecord and record.topic_id in self.image.topics_by_id
        ]
        self.image.replay_batch(published, end_offset)
        if any(type(record) is ClientQuotaRecord for record in published):
            self.on_quotas_changed()
        if self._acl_watcher is not None:
            self._acl_watcher.replayed(published)
        if self._follower is None:
            self.removed.update(topic.name for topic in removed)
            self.removed -= self.image.topics.keys()
        elif published:
            for _ in self._follower.apply(published, removed):
                await asyncio.sleep(0)
        if self.controller is not None:
            self.controller.applied(end_offset)
        self._notify()

    async def _load_installed(self) -> None:
        """The log begins after the image: continue from the snapshot that the leader sent."""
        try:
            image = await self._snapshots.load()
        except StorageFailed as error:
            raise _Retried(str(error)) from error
        if image.version <= self.image.version:
            raise self._lost()
        self._transaction = OpenTransaction()
        await self._replace_acls(image)
        self.image.become(image)
        self.on_quotas_changed()
        if self._follower is not None:
            for _ in self._follower.reload():
                await asyncio.sleep(0)

    async def _replace_acls(self, image: MetadataImage) -> None:
        if self._acl_watcher is not None:
            for _ in self._acl_watcher.replace(image.acls):
                await asyncio.sleep(0)

    def _lost(self) -> BadMetadata:
        offset = self.quorum.log.log_start_offset
        return BadMetadata(f"the metadata log begins at offset {offset}, and no snapshot has what was before")

    def _take_over(self) -> None:
        """Decide about metadata: this node was elected and has applied all that is committed."""
        self.controller = ActiveController(self, self._elected_epoch)
        try:
            self.on_elected(self._predecessor_id)
        except StorageFailed as error:
            self._end_decisions(self._not_controller(f"this node cannot lead: {error}"))
            raise _Retried(str(error)) from error

    def _leads(self, epoch: int) -> bool:
        return self.quorum.is_leader and self.quorum.epoch == epoch

    def _write_snapshot_if_due(self) -> None:
        if self._transaction.is_open:
            return
        self._snapshots.write_if_due(self.image, self.clock.now_ms())

    async def _failed_once(self, failure: "_Retried") -> None:
        """The disk has failed to read or write: retry after a delay, while another node is the controller."""
        self._failures += 1
        if self._failures > FAILURES_MAX:
            raise BadMetadata(str(failure))
        if self._failures == 1:
            log.warning(
                "metadata at offset %d cannot be applied, will retry: %s", self.image.version, failure
            )
        self._leave_to_others()
        await asyncio.sleep(RETRY_DELAY_MS / 1000)

    def _fail(self, reason: str) -> None:
        log.error("the metadata of this node is not updated until it is restarted: %s", reason)
        self._failure = reason
        self._end_decisions(self._unusable())
        self._leave_to_others()

    def _leave_to_others(self) -> None:
        """This node cannot decide about metadata: let another one lead the quorum.

        Not before a majority has the log of this node: without that no other may be electable.
        """
        if not self.is_sole_voter and self._leads(self._elected_epoch):
            self.quorum.resign()

    def _end_decisions(self, error: Exception) -> None:
        """This node is no longer the active controller."""
        if self.controller is not None:
            self.controller.resign(error)
            self.controller = None
            self.on_resigned()

    def _unusable(self) -> ApiError:
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"metadata cannot be changed: {self._failure}")
