"""Advancing log starts: durable first, then visible. Requests share one write of the file, in a thread.

idle ── advance ──► storing ── advance ──► storing, others wait ── done ──► storing ── done ──► idle
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from runnel.disk.dropping import drop_below_start
from runnel.model.errors import ApiError, ErrorCode, StorageFailed
from runnel.model.ids import TopicPartition
from runnel.ports.files import Workers

if TYPE_CHECKING:
    from runnel.disk.disk_log import DiskLog
    from runnel.disk.offset_file import OffsetFile

logger = logging.getLogger(__name__)

Done = Callable[[ApiError | None], None]

DROPS_AT_ONCE_MAX = 100
"""Logs whose segments are dropped in one turn of the event loop: about 300 microseconds each."""


@dataclass(slots=True)
class Request:
    """A pending advance of a log start."""

    log: "DiskLog"
    offset: int
    done: Done
    truncations: int
    """The number of truncations at the request: later ones change the records at `offset`."""
    is_void: bool = False
    """The log was removed, and possibly recreated."""

    @property
    def is_stale(self) -> bool:
        return self.log.truncations != self.truncations


class LogStarts:
    """The log starts that are being advanced."""

    __slots__ = ("_file", "_requested", "_storing", "_waiting", "_workers")

    def __init__(self, file: "OffsetFile", workers: Workers) -> None:
        self._file = file
        self._workers = workers
        self._storing: list[Request] = []
        self._waiting: list[Request] = []
        self._requested: dict[TopicPartition, int] = {}
        """The offsets that are being stored."""

    def advance(self, log: "DiskLog", offset: int, done: Done, truncations: int) -> None:
        """Advance the log start to `offset`; `done` is called once that is durable, or with the error.

        `truncations` is how often the log had been truncated when that was requested.
        """
        self._waiting.append(Request(log, offset, done, truncations))
        if not self._storing:
            self._store()

    def __contains__(self, name: TopicPartition) -> bool:
        """Is a log start of this log being stored? Other writes of the file must contain it, too."""
        return name in self._requested

    def forget(self, name: TopicPartition) -> None:
        """The log of this name was removed: no later write of the file may contain its offsets."""
        for request in self._storing + self._waiting:
            if request.log.name == name:
                request.is_void = True
        self._requested.pop(name, None)

    def _store(self) -> None:
        self._storing, self._waiting = self._waiting, []
        requested = self._requested
        for request in self._storing:
            log = request.log
            if not request.is_void and not request.is_stale:
                offset = max(request.offset, log.log_start_offset, requested.get(log.name, 0))
                requested[log.name] = offset
                self._file.set(log.name, offset)
        self._workers.submit(self._file.prepare(), partial(self._stored, self._storing))

    def _stored(self, requests: list[Request], _: None, failure: BaseException | None) -> None:
        self._storing = []
        self._requested.clear()
        # The log starts advance before the next ones are stored, which must not lower them.
        outcomes = [
            _advance(request) if failure is None else _failed(request, failure) for request in requests
        ]
        refused = [request for request, error in zip(requests, outcomes, strict=True) if error is not None]
        self._take_back(refused)
        if refused and failure is None:
            self._workers.submit(self._file.prepare(), lambda _, __: None)
        if self._waiting:
            self._store()
        _drop_some([request.log for request, error in zip(requests, outcomes, strict=True) if error is None])
        for request, outcome in zip(requests, outcomes, strict=True):
            request.done(outcome)

    def _take_back(self, requests: list[Request]) -> None:
        """Remove these offsets from the next write of the file."""
        for request in requests:
            if not request.is_void:
                self._file.set(request.log.name, request.log.log_start_offset)


def _advance(request: Request) -> ApiError | None:
    log = request.log
    if log.failure is not None:
        return StorageFailed(log.failure)
    if request.is_stale:
        return ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{log.name} was truncated meanwhile")
    log.segments.log_start_offset = max(log.log_start_offset, request.offset)
    return None


def _drop_some(logs: "list[DiskLog]") -> None:
    """Free segments below the log starts: of so many logs that no client notices. Upkeep does the rest."""
    count = 0
    for log in logs:
        try:
            count += drop_below_start(log) > 0
        except OSError as failure:
            # The records are deleted; upkeep tries again to free their segments.
            logger.warning("%s: segments below the log start remain: %s", log.segments.folder, failure)
            count += 1
        if count == DROPS_AT_ONCE_MAX:
            break


def _failed(request: Request, failure: BaseException) -> ApiError:
    if not isinstance(failure, OSError):
        logger.error("%s: the log start could not be stored", request.log.segments.folder, exc_info=failure)
    return StorageFailed(f"{request.log.segments.folder}: {failure}")
