"""Logs whose names the checkpoint files may still list for an older log that was removed.

    mark (an empty file beside the new folder) ─► store the files without the name ─► remove the mark

Neither the creation of a log nor its first writes wait for that. A start that finds the mark ignores what
the checkpoint files contain under the name. The mark is created before the folder, in the same directory;
the file system keeps that order. While it is there, the files do not list the new log either.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from runnel.disk.atomic import remove_if_exists
from runnel.log.names import recreated_name
from runnel.model.errors import ApiError, StorageFailed
from runnel.model.ids import TopicPartition
from runnel.ports.files import Files, Workers

if TYPE_CHECKING:
    from runnel.disk.disk_log import DiskLog
    from runnel.disk.offset_file import OffsetFile

logger = logging.getLogger(__name__)

Action = Callable[[ApiError | None], None]


class RecreatedLogs:
    """The marked logs of one data directory."""

    __slots__ = (
        "_failed",
        "_files",
        "_folder",
        "_is_releasing",
        "_logs",
        "_marks",
        "_stored",
        "_waiting",
        "_workers",
    )

    def __init__(self, files: Files, folder: str, stored: "tuple[OffsetFile, ...]", workers: Workers) -> None:
        self._files, self._folder = files, folder
        self._stored, self._workers = stored, workers
        self._logs: dict[TopicPartition, DiskLog] = {}
        self._marks: set[str] = set()
        """All marks to remove, also of logs that were removed since."""
        self._waiting: list[tuple[DiskLog, Action]] = []
        self._is_releasing = self._failed = False

    def __contains__(self, name: TopicPartition) -> bool:
        return name in self._logs

    def mark(self, name: TopicPartition, topic_id: bytes) -> None:
        """Call before the folder of the new log is created."""
        self._files.write(self._path(name, topic_id), b"", sync=False)

    def is_marked(self, name: TopicPartition, topic_id: bytes) -> bool:
        return self._files.exists(self._path(name, topic_id))

    def add(self, log: "DiskLog") -> None:
        """This log is marked."""
        self._logs[log.name] = log
        self._marks.add(self._path(log.name, log.topic_id))

    def forget(self, name: TopicPartition) -> None:
        """The log was removed."""
        self._logs.pop(name, None)

    def when_released(self, log: "DiskLog", action: Action) -> None:
        """Act once the checkpoint files may list this log, or with the reason why they may not."""
        self._waiting.append((log, action))

    def release(self, *, again: bool = False) -> None:
        """Begin to store the files without these names, in a thread; `again` also after a failure."""
        if self._is_releasing or not self._marks or (self._failed and not again):
            return
        self._is_releasing = True
        logs, marks = dict(self._logs), set(self._marks)
        stores = [file.prepare() for file in self._stored]
        work = partial(self._store_and_unmark, stores, marks)
        self._workers.submit(work, partial(self._released, logs, marks))

    def release_now(self) -> None:
        """The files are stored without these names: remove the marks, durably. May raise OSError."""
        if self._marks:
            self._store_and_unmark([], self._marks)

    def _store_and_unmark(self, stores: list[Callable[[], None]], marks: set[str]) -> None:
        for store in stores:
            store()
        for mark in sorted(marks):
            remove_if_exists(self._files, mark)
        # What the files list from now on must not be ignored after a power failure.
        self._files.sync_folder(self._folder)

    def _released(
        self,
        logs: "dict[TopicPartition, DiskLog]",
        marks: set[str],
        _: None,
        failure: BaseException | None,
    ) -> None:
        self._is_releasing = False
        self._failed = failure is not None
        if failure is None:
            self._marks -= marks
            for name, log in logs.items():
                if self._logs.get(name) is log:
                    del self._logs[name]
            # One of those that were created meanwhile may have the mark of a log that was removed.
            self._marks |= {self._path(name, log.topic_id) for name, log in self._logs.items()}
        else:
            logger.warning("%s: checkpoints could not be stored: %s", self._folder, failure)
        waiting, self._waiting = self._waiting, []
        for log, action in waiting:
            if log.failure is not None:
                action(StorageFailed(log.failure))
            elif self._logs.get(log.name) is not log:
                action(None)
            elif failure is not None:
                action(StorageFailed(f"{self._folder}: {failure}"))
            else:
                # It was created while the others were released.
                self._waiting.append((log, action))

    def _path(self, name: TopicPartition, topic_id: bytes) -> str:
        return f"{self._folder}/{recreated_name(name, topic_id)}"
