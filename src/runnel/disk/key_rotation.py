"""Rotation of the master key: the keys of all segments are encrypted with the new one; batches stay.

    for each log, some segments at a time:
      prepare (thread: new key files beside the old ones) ─► publish (loop: rename) ─► sync (thread)
    at the end: which master keys do key files need? (thread) The others are no longer listed.

Compaction and truncation replace segments, and so their keys: these are published on the event loop, where no
such change begins meanwhile, and only for segments that the log still has. A log that is being changed has
its turn in the next round. After a crash at any point each key file is either the old one or the new one, and
the next start continues: the list of master keys has the old one until no key file needs it.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from runnel.batch.errors import CorruptBatch
from runnel.disk.atomic import replace_file
from runnel.disk.disk_log import DiskLog
from runnel.disk.folder_lease import FolderLease
from runnel.disk.keyring import Keyring, SegmentKeys, master_of
from runnel.disk.opening import topic_id_of
from runnel.disk.segment import Segment
from runnel.log.names import CLEANED, KEY, LOG, TEMPORARY, offset_name, offset_of, partition_of
from runnel.model.ids import TopicPartition
from runnel.ports.files import Files, Workers

logger = logging.getLogger(__name__)

SEGMENTS_PER_STEP = 32
"""Keys that a thread prepares at once: each takes an fsync."""
RETRY_AFTER_MS = 10_000


@dataclass(slots=True)
class _Step:
    """Some segments of a log whose keys may have to be encrypted again."""

    log: DiskLog
    segments: list[Segment]
    keys: SegmentKeys
    lease: FolderLease
    prepared: list[Segment]

    def prepare(self) -> None:
        """In a thread: write the new key files, durably, under temporary names."""
        folder = self.log.segments.folder
        for segment in self.segments:
            try:
                data = self.keys.rewrap(self.lease, folder, segment.base_offset)
            except CorruptBatch:
                # Reads report it. It needs its master key until the log is replaced.
                continue
            if data is not None:
                self.lease.write(self._path(segment) + TEMPORARY, data, sync=True)
                self.prepared.append(segment)

    def publish(self) -> bool:
        """On the event loop; False if the log is being changed, and nothing was published."""
        log = self.log
        is_quiet = log.failure is None and log.swap is None and log.truncation is None
        segments = set(log.segments.segments) if is_quiet else set()
        for segment in self.prepared:
            if segment in segments:
                self.lease.rename(self._path(segment) + TEMPORARY, self._path(segment))
            else:
                self.lease.remove(self._path(segment) + TEMPORARY)
        return segments.issuperset(self.prepared)

    def sync(self) -> None:
        """In a thread."""
        self.lease.sync_folder(self.log.segments.folder)

    def _path(self, segment: Segment) -> str:
        return f"{self.log.segments.folder}/{offset_name(segment.base_offset, KEY)}"


class KeyRotation:
    """Encrypts the keys of all segments with the current master key, whenever some are not."""

    def __init__(
        self,
        keyring: Keyring,
        files: Files,
        path: str,
        logs: Mapping[TopicPartition, DiskLog],
        workers: Workers,
    ) -> None:
        self._keyring, self._files, self._path = keyring, files, path
        self._logs, self._workers = logs, workers
        self._waiting: list[tuple[DiskLog, list[Segment]]] = []
        self._is_running = self._is_stopped = False
        self._not_before_ms = 0
        self._now_ms = 0

    @property
    def is_due(self) -> bool:
        """May a key file need another master key than the current one?"""
        return bool(self._keyring.listed - {self._keyring.current.id})

    def stop(self) -> None:
        """Change no more files. What is left continues at the next start."""
        self._is_stopped = True

    def consider(self, now_ms: int) -> None:
        """Start a round if one is due and none is under way."""
        self._now_ms = now_ms
        is_too_early = self._not_before_ms - RETRY_AFTER_MS <= now_ms < self._not_before_ms
        if self._is_running or not self.is_due or is_too_early:
            return
        self._is_running = True
        self._waiting = [
            (log, some)
            for log in self._logs.values()
            for some in _slices([each for each in log.segments.segments if each.is_encrypted])
        ]
        self._next()

    def _next(self) -> None:
        if self._is_stopped:
            return
        while self._waiting:
            log, segments = self._waiting.pop()
            keys = log.segments.keys
            if self._logs.get(log.name) is log and keys is not None:
                step = _Step(log, segments, keys, log.cleaner_files(), [])
                self._workers.submit(step.prepare, partial(self._prepared, step))
                return
        self._workers.submit(self._finish, self._finished)

    def _prepared(self, step: _Step, _: None, failure: BaseException | None) -> None:
        if self._is_stopped:
            return
        try:
            if failure is not None:
                raise failure
            if not step.publish():
                self._postpone()
        except OSError as error:
            # The log was removed or changed meanwhile, or the disk is full.
            logger.debug("%s: the keys are not rotated yet: %s", step.log.segments.folder, error)
            self._postpone()
            self._next()
            return
        self._workers.submit(step.sync, self._synced)

    def _synced(self, _: None, failure: BaseException | None) -> None:
        if failure is not None:
            self._postpone()
        self._next()

    def _postpone(self) -> None:
        self._not_before_ms = self._now_ms + RETRY_AFTER_MS

    def _finish(self) -> None:
        """In a thread."""
        self._keyring.forget_unneeded(partial(masters_in, self._files, self._path))

    def _finished(self, _: None, failure: BaseException | None) -> None:
        self._is_running = False
        if failure is not None:
            logger.warning("the rotation of the master key is not complete: %s", failure)
        if failure is not None or self.is_due:
            self._postpone()
        else:
            current = self._keyring.current.id
            logger.warning("all segment keys are encrypted with master key %s now", current)


def rotate_stopped(files: Files, path: str, keyring: Keyring, report: Callable[[str], None]) -> int:
    """Rotate the keys of a data directory that no broker uses; returns how many were encrypted again."""
    count = 0
    for folder, partition in _folders(files, path):
        topic_id = topic_id_of(files, folder)
        if topic_id is None:
            continue
        keys = keyring.keys_of(partition, topic_id)
        for name in sorted(files.names(folder)):
            base_offset = offset_of(name, KEY)
            if base_offset is None:
                continue
            try:
                data = keys.rewrap(files, folder, base_offset)
            except CorruptBatch as error:
                report(str(error))
                continue
            if data is not None:
                replace_file(files, folder, name, data, sync=True)
                count += 1
    keyring.forget_unneeded(partial(masters_in, files, path))
    return count


def masters_in(files: Files, path: str) -> set[str]:
    """The ids of the master keys that the key files of a data directory need. May raise OSError."""
    found: set[str] = set()
    for folder, _ in _folders(files, path):
        # A log that was removed meanwhile needs none.
        with suppress(FileNotFoundError):
            found |= _masters_of(files, folder)
    return found


def _masters_of(files: Files, folder: str) -> set[str]:
    """The same of one folder. A key that is renamed meanwhile, by a swap of segments, is not missed."""
    names = _key_names(files, folder)
    while True:
        found: set[str] = set()
        is_missed = False
        for name in _needed_keys(names):
            try:
                found.add(master_of(files, f"{folder}/{name}"))
            except FileNotFoundError:
                is_missed = True
            except CorruptBatch:
                # No master key helps.
                continue
        # A listing during a rename may have neither name.
        before, names = names, _key_names(files, folder)
        if names == before and not is_missed:
            break
    if names:
        # A step may have failed after it renamed keys: no former key can reappear, nor a deleted segment.
        files.sync_folder(folder)
    return found


def _key_names(files: Files, folder: str) -> set[str]:
    """The names of the files on which it depends which keys are needed."""
    names = files.names(folder)
    keys = {name for name in names if offset_of(name.removesuffix(CLEANED), KEY) is not None}
    logs = {name.replace(KEY, LOG) for name in keys} | {name.replace(KEY, LOG) + CLEANED for name in keys}
    return keys | logs.intersection(names)


def _needed_keys(names: set[str]) -> Iterable[str]:
    """The key files of a folder without those of deleted segments."""
    for name in names:
        log = name.replace(KEY, LOG)
        if log != name and (name.endswith(CLEANED) or log in names or log + CLEANED in names):
            yield name


def _folders(files: Files, path: str) -> Iterable[tuple[str, TopicPartition]]:
    for name in sorted(files.names(path)):
        partition = partition_of(name)
        if partition is not None:
            yield f"{path}/{name}", partition


def _slices(segments: list[Segment]) -> Iterable[list[Segment]]:
    for start in range(0, len(segments), SEGMENTS_PER_STEP):
        yield segments[start : start + SEGMENTS_PER_STEP]
