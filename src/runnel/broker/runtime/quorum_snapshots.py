"""Snapshots of the metadata log: those that this node wrote, and those that it receives from the leader."""

import asyncio
import logging
from typing import TYPE_CHECKING

from runnel.broker.runtime.blocking import Job
from runnel.broker.runtime.quorum_start import restart_log
from runnel.model.errors import ApiError
from runnel.model.ids import SnapshotId
from runnel.raft.control import read_snapshot_voters
from runnel.raft.values import WritePage

if TYPE_CHECKING:
    from runnel.broker.runtime.broker import Broker
    from runnel.broker.runtime.quorum_log import QuorumLog

logger = logging.getLogger("runnel.broker")


class QuorumSnapshots:
    """Shortens the log after a snapshot, or replaces it by one."""

    def __init__(self, quorum: "QuorumLog", broker: "Broker") -> None:
        self._quorum = quorum
        self._broker = broker
        self._is_dropping = False

    def written(self, snapshot: SnapshotId) -> None:
        """A new snapshot exists: drop the log before the previous one, which followers may still need."""
        view = self._quorum.view
        older = view.snapshots
        view.set_snapshots(sorted({snapshot, *older}, reverse=True))
        if older and not self._is_dropping:
            self._is_dropping = True
            self._broker.run(self._drop_before(older[0])).on_settled(self._dropped)

    async def _drop_before(self, snapshot: SnapshotId) -> None:
        log, view = self._quorum.log, self._quorum.view
        dropped: asyncio.Future[ApiError | None] = asyncio.get_running_loop().create_future()
        log.delete_records_before(snapshot.end_offset, dropped.set_result)
        if (error := await dropped) is not None:
            raise error
        view.set_snapshots([each for each in view.snapshots if each >= snapshot])
        self._quorum.core.history.shortened(snapshot.end_offset)
        store = self._quorum.snapshots
        await self._broker.disk.run_blocking(Job(lambda: store.remove_before(snapshot)))

    def _dropped(self, outcome: Exception | None) -> None:
        self._is_dropping = False
        if isinstance(outcome, ApiError):
            logger.warning("the metadata log could not be shortened: %s", outcome)
        elif outcome is not None:
            raise outcome

    async def receive(self, page: WritePage) -> None:
        """Store a page of the leader's snapshot; the last one replaces the log. Raises ApiError."""
        quorum, disk, store = self._quorum, self._broker.disk, self._quorum.snapshots
        snapshot = page.snapshot
        await disk.run_blocking(Job(lambda: store.write_page(snapshot, page.position, page.data)))
        if not page.is_last:
            return
        voters = await disk.run_blocking(Job(lambda: read_snapshot_voters(store.read_received(snapshot))))
        await disk.run_blocking(Job(lambda: store.publish_received(snapshot)))
        # Before the log is empty: its last epoch is that of the snapshot then, by which this node votes.
        quorum.view.set_snapshots(sorted({snapshot, *quorum.view.snapshots}, reverse=True))
        await restart_log(quorum.log, snapshot.end_offset)
        quorum.core.history.restart(snapshot.end_offset, *voters)
        quorum.view.set_snapshots([snapshot])
        await disk.run_blocking(Job(lambda: store.remove_before(snapshot)))
        quorum.snapshot_installed(snapshot)
