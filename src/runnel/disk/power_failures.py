"""Which logs may have lost writes to a power failure, as opposed to the end of a process.

The page cache survives a process: after `kill -9`, in the same boot of the machine, files are as they were
written. So the directory has a file with the id of the boot, and the logs that were not opened in it. That is
not synced: after a power failure another boot is running, and does not rely on it. Only the logs that are
known to be damaged are listed durably: they are still damaged then.
"""

import logging
from collections.abc import Callable, Iterable

from runnel.disk.atomic import replace_file
from runnel.log.last_boot import DamagedLastBoot, LastBoot, decode_last_boot, encode_last_boot
from runnel.log.names import LAST_BOOT
from runnel.model.ids import TopicPartition
from runnel.ports.files import Files, Workers

logger = logging.getLogger(__name__)


class PowerFailures:
    """The logs of a data directory that were not recovered since the machine was started."""

    def __init__(self, files: Files, folder: str, logs: Iterable[TopicPartition], workers: Workers) -> None:
        self._files, self._folder, self._workers = files, folder, workers
        self._boot_id = files.boot_id()
        self._unrecovered = set(logs)
        self._damaged: set[TopicPartition] = set()
        self._is_storing = self._is_synced = False
        last = self._load()
        self._is_changed = last is None or last.boot_id != self._boot_id
        if last is not None:
            self._is_synced = bool(last.damaged)
            self._damaged = self._unrecovered.intersection(last.damaged)
            self._unrecovered -= self._damaged
            if last.boot_id == self._boot_id:
                # The others were recovered or created in this boot.
                self._unrecovered.intersection_update(last.unrecovered)
        # Before any log is written to: what is not listed was written in this boot.
        self._store()

    def may_have_lost_writes(self, log: TopicPartition) -> bool:
        """May a log that is about to be recovered have lost writes to a power failure?"""
        return not self._boot_id or log in self._unrecovered

    def opened(self, log: TopicPartition, *, is_damaged: bool) -> None:
        """This log was recovered, or created: what is found next time was written in this boot."""
        if is_damaged and log in self._damaged:
            return
        self.forget(log)
        if is_damaged:
            self._damaged.add(log)
            self._is_changed = True
            self._store()

    def forget(self, log: TopicPartition) -> None:
        """This log was removed."""
        if log in self._unrecovered or log in self._damaged:
            self._unrecovered.discard(log)
            self._damaged.discard(log)
            self._is_changed = True

    def store_soon(self) -> None:
        """Store changes in a thread."""
        if self._is_changed and not self._is_storing:
            self._is_storing = True
            self._workers.submit(self._work(), self._stored)

    def _store(self) -> None:
        if self._is_changed and not self._is_storing:
            try:
                self._work()()
            except OSError as failure:
                self._stored(None, failure)

    def _work(self) -> Callable[[], None]:
        self._is_changed = False
        data = encode_last_boot(LastBoot(self._boot_id, self._unrecovered, self._damaged))
        # Also when none is damaged any longer: the last list must not reappear after a power failure.
        self._is_synced |= bool(self._damaged)
        sync = self._is_synced
        return lambda: replace_file(self._files, self._folder, LAST_BOOT, data, sync=sync)

    def _stored(self, _: None, failure: BaseException | None) -> None:
        self._is_storing = False
        if failure is not None:
            # Until that succeeds, a start recovers logs as after a power failure.
            logger.debug("%s/%s could not be stored, will retry: %s", self._folder, LAST_BOOT, failure)
            self._is_changed = True

    def _load(self) -> LastBoot | None:
        try:
            return decode_last_boot(self._files.read(f"{self._folder}/{LAST_BOOT}"))
        except FileNotFoundError:
            return None
        except DamagedLastBoot as damage:
            logger.warning("%s/%s is not used: %s", self._folder, LAST_BOOT, damage)
            return None
