"""Group commit: all that wait for a log to become durable share one fdatasync.

    idle ── sync ──► running ── sync ──► running, next waits ── done ──► running ── done ──► idle

A sync that is requested while one is running waits for the next: the running one may have begun too early.
"""

from asyncio import Future, get_running_loop
from collections.abc import Callable
from functools import partial

from runnel.disk.disk_log import DiskLog
from runnel.disk.syncing import SyncJob, begin_sync, fail_sync, finish_sync, return_changes
from runnel.model.errors import StorageFailed
from runnel.observe.metrics import LatencyCounts
from runnel.ports.files import Workers


class GroupCommit:
    """The syncs of all logs: at most one at a time for each."""

    def __init__(
        self,
        workers: Workers,
        seal_workers: Workers,
        on_durable: Callable[[DiskLog], None],
        seconds: Callable[[], float],
    ) -> None:
        """`seconds` is the monotonic clock."""
        self._on_durable = on_durable
        self._seconds = seconds
        self.sync_times = LatencyCounts()
        """How long each fdatasync took."""
        self.failures = 0
        """Syncs that failed."""
        self._workers = workers
        self._seal_workers = seal_workers
        self._running: dict[DiskLog, tuple[SyncJob, list[Future[int]]]] = {}
        self._next: dict[DiskLog, list[Future[int]]] = {}
        self._is_closed = False

    def sync(self, log: DiskLog) -> "Future[int]":
        """Resolves with the durable offset once a sync that began after this call is done."""
        future: Future[int] = get_running_loop().create_future()
        if log.failure is not None:
            future.set_exception(StorageFailed(log.failure))
        elif not log.durability.needs_sync and log not in self._running:
            future.set_result(log.durability.durable_offset)
        else:
            self._next.setdefault(log, []).append(future)
            self._start_if_idle(log)
        return future

    def flush(self, log: DiskLog) -> None:
        """Make the log durable in the background."""
        if log.failure is None and log.durability.needs_sync:
            self._next.setdefault(log, [])
            self._start_if_idle(log)

    def seal(self, log: DiskLog) -> None:
        """Make the closed segments durable in the background, not the active one."""
        if (
            log.failure is None
            and log.durability.unsealed
            and log not in self._running
            and not self._is_closed
        ):
            self._begin(log, [], self._seal_workers, with_active=False)

    def forget(self, log: DiskLog) -> None:
        """The log is being removed: its folder's names are free at once. This does not wait for the disk."""
        _fail(self._next.pop(log, []), StorageFailed(f"{log.name} was removed"))
        if log in self._running:
            self._running[log][0].lease.revoke()

    def interrupt(self, log: DiskLog) -> list[Callable[[], None]]:
        """The log is being truncated; its waiters remain.

        Once what this returns has been called, in any thread, no other thread touches the log's folder.
        """
        job, waiters = self._running.pop(log, (None, []))
        if job is None:
            return []
        job.lease.revoke()
        return_changes(job)
        if waiters:
            self._next[log] = waiters + self._next.get(log, [])
            get_running_loop().call_soon(self._start_if_idle, log)
        return [job.lease.wait]

    def is_busy(self, log: DiskLog) -> bool:
        return log in self._running

    def close(self) -> None:
        """Start nothing more, and wait for what is under way."""
        self._is_closed = True
        self._seal_workers.drain()
        self._workers.drain()
        for job, _ in list(self._running.values()):
            if isinstance(job.outcome, bool):
                self._done(job, job.outcome, None)
            else:
                self._done(job, None, job.outcome or OSError("it did not end"))
        for waiters in self._next.values():
            _fail(waiters, StorageFailed("the data directory is closed"))

    def _start_if_idle(self, log: DiskLog) -> None:
        if log not in self._next or log in self._running or self._is_closed:
            return
        waiters = self._next.pop(log)
        if log.failure is not None:
            _fail(waiters, StorageFailed(log.failure))
        else:
            self._begin(log, waiters, self._workers, with_active=True)

    def _begin(self, log: DiskLog, waiters: "list[Future[int]]", workers: Workers, with_active: bool) -> None:
        try:
            job = begin_sync(log, self._seconds, with_active=with_active)
        except OSError as failure:
            # A file could not be opened: nothing was tried, so nothing is lost that was not before.
            _fail(waiters, StorageFailed(f"{log.segments.folder}: {failure}"))
            return
        self._running[log] = job, waiters
        workers.submit(job.run, partial(self._done, job))

    def _done(self, job: SyncJob, sealed: bool | None, failure: BaseException | None) -> None:
        log = job.log
        for seconds in job.sync_seconds:
            self.sync_times.add(seconds)
        self.failures += failure is not None
        running, waiters = self._running.get(log, (None, []))
        if running is not job:
            if failure is not None and not job.has_synced_data:
                # It was interrupted, but a failure of the data sync counts nevertheless.
                fail_sync(job, failure)
            return
        del self._running[log]
        if failure is not None:
            fail_sync(job, failure)
            error = StorageFailed(str(log.failure))
            _fail(waiters + self._next.pop(log, []), error)
            return
        finish_sync(job, bool(sealed))
        if log.failure is None:
            # Else it may have been removed, and another one have its name.
            self._on_durable(log)
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(log.durability.durable_offset)
        if log in self._next:
            self._start_if_idle(log)
        elif log.durability.unsealed and sealed:
            self.seal(log)


def _fail(waiters: "list[Future[int]]", error: StorageFailed) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_exception(error)
