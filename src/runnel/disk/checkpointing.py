"""Where each log begins and up to where it needs no check, kept in two files beside the logs."""

import logging
from collections.abc import Callable, Container, Iterable, Mapping
from threading import Lock

from runnel.disk.atomic import replace_file
from runnel.disk.disk_log import DiskLog
from runnel.disk.log_starts import LogStarts
from runnel.log.checkpoints import DamagedCheckpoint, decode_offsets, encode_offsets
from runnel.log.names import LOG_STARTS, RECOVERY_POINTS
from runnel.model.ids import TopicPartition
from runnel.ports.files import Files, Workers

logger = logging.getLogger(__name__)

Offsets = dict[TopicPartition, int]


class OffsetFile:
    """One offset per partition in a file that is replaced as a whole."""

    def __init__(self, files: Files, folder: str, name: str) -> None:
        self._files = files
        self._folder = folder
        self._name = name
        self._lock = Lock()
        self._newest = 0
        self._version = 0
        self._deleted: dict[TopicPartition, int] = {}
        """Deleted names that the file may still contain, and the version after which it does not."""
        self.stored = self._load()
        """What the file contains or is about to contain. A deleted name stays until the next write."""

    def _load(self) -> Offsets:
        try:
            return decode_offsets(self._files.read(f"{self._folder}/{self._name}"))
        except FileNotFoundError:
            return {}
        except DamagedCheckpoint as damage:
            # Without recovery points more is checked, without log starts more can be read: both are safe.
            logger.warning("%s/%s is not used: %s", self._folder, self._name, damage)
            return {}

    def store(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Durable on return."""
        self.prepare(offsets)()

    def is_stored(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Does the file contain exactly these?"""
        return self._newest == self._version and offsets == self.stored

    def prepare(self, offsets: Mapping[TopicPartition, int]) -> Callable[[], None]:
        """The work of storing these, for any thread. An older one that runs late does nothing."""
        self._deleted = {name: version for name, version in self._deleted.items() if version >= self._newest}
        self.stored = {name: offset for name, offset in offsets.items() if name not in self._deleted}
        self._version += 1
        version, stored = self._version, self.stored

        def work() -> None:
            with self._lock:
                if version > self._newest:
                    replace_file(self._files, self._folder, self._name, encode_offsets(stored), sync=True)
                    self._newest = version

        return work

    def forget(self, name: TopicPartition) -> None:
        """Omit this one from the next write on: to write now would cost as much as all logs."""
        # What could not be stored the last time may still be in the file.
        if name in self.stored or not self.is_stored(self.stored):
            self._deleted[name] = self._version

    def free(self, name: TopicPartition) -> None:
        """A new log takes this name: the file contains no older one, durably, on return."""
        if self._deleted.get(name, -1) >= self._newest:
            self.store(self.stored)


class Checkpoints:
    """The recovery points and log starts of all logs of one data directory."""

    def __init__(self, files: Files, folder: str, workers: Workers) -> None:
        self.recovery_points = OffsetFile(files, folder, RECOVERY_POINTS)
        self.log_starts = OffsetFile(files, folder, LOG_STARTS)
        self.advancing = LogStarts(self.log_starts, workers)

    def recovery_points_of(self, logs: Iterable[DiskLog]) -> Offsets:
        """The recovery points as they are now; logs that are not open keep theirs."""
        points = dict(self.recovery_points.stored)
        for log in logs:
            if not log.health.is_damaged:
                points[log.name] = log.durability.recovery_point
        return points

    def log_starts_of(self, logs: Iterable[DiskLog]) -> Offsets:
        """The log starts that do not follow from file names."""
        starts = dict(self.log_starts.stored)
        for log in logs:
            if log.durability.start_is_in_file_names:
                starts.pop(log.name, None)
            else:
                starts[log.name] = log.log_start_offset
        return starts | self.advancing.requested

    def forget(self, name: TopicPartition) -> None:
        """A log was removed."""
        self.advancing.forget(name)
        for file in (self.recovery_points, self.log_starts):
            file.forget(name)

    def forget_all_but(self, names: Container[TopicPartition]) -> None:
        """At the start only these logs exist; the last run may have ended before it forgot the others."""
        for file in (self.recovery_points, self.log_starts):
            for name in file.stored:
                if name not in names:
                    file.forget(name)

    def free(self, name: TopicPartition) -> None:
        """No log that is created from now on inherits from an older one of this name. Durable on return."""
        for file in (self.recovery_points, self.log_starts):
            file.free(name)

    def store(self, logs: Iterable[DiskLog]) -> None:
        """Write both files with the current offsets; durable on return."""
        logs = list(logs)
        self.recovery_points.store(self.recovery_points_of(logs))
        self.log_starts.store(self.log_starts_of(logs))
