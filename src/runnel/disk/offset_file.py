"""A checkpoint file of one offset per partition, replaced atomically by a thread."""

import logging
from collections.abc import Callable
from threading import Lock

from runnel.disk.atomic import replace_file
from runnel.log.checkpoints import DamagedCheckpoint, decode_offsets, encode_offsets
from runnel.model.ids import TopicPartition
from runnel.ports.files import Files

logger = logging.getLogger(__name__)

Offsets = dict[TopicPartition, int]


class OffsetFile:
    """The offsets of the next write, and the discarded names that the file may still contain."""

    __slots__ = (
        "_discarded",
        "_files",
        "_folder",
        "_is_changed",
        "_lock",
        "_name",
        "_newest",
        "_version",
        "offsets",
    )

    def __init__(self, files: Files, folder: str, name: str) -> None:
        self._files = files
        self._folder = folder
        self._name = name
        self._lock = Lock()
        self._newest = 0
        self._version = 0
        self._is_changed = False
        self._discarded: dict[TopicPartition, int] = {}
        """Discarded names that the file may still contain, and the last version that may do so."""
        self.offsets = self._load()

    def _load(self) -> Offsets:
        try:
            return decode_offsets(self._files.read(f"{self._folder}/{self._name}"))
        except FileNotFoundError:
            return {}
        except DamagedCheckpoint as damage:
            # Without recovery points more is verified, without log starts more is readable: both are safe.
            logger.warning("%s/%s is not used: %s", self._folder, self._name, damage)
            return {}

    @property
    def is_stored(self) -> bool:
        """Does the file contain just these offsets?"""
        return self._newest == self._version and not self._is_changed

    def set(self, name: TopicPartition, offset: int) -> None:
        if self.offsets.get(name) != offset:
            self.offsets[name] = offset
            self._is_changed = True

    def discard(self, name: TopicPartition) -> None:
        """Omit this name from the next write on."""
        if self.offsets.pop(name, None) is not None:
            self._discarded[name] = self._version
            self._is_changed = True

    def may_contain_discarded(self, name: TopicPartition) -> bool:
        """Could the file still contain an offset that was discarded?"""
        return self._discarded.get(name, -1) >= self._newest

    def prepare(self) -> Callable[[], None]:
        """A task that stores the current offsets, in any thread. Older tasks are skipped."""
        newest = self._newest
        self._discarded = {name: version for name, version in self._discarded.items() if version >= newest}
        self._version += 1
        self._is_changed = False
        version, offsets = self._version, self.offsets.copy()

        def work() -> None:
            with self._lock:
                if version > self._newest:
                    replace_file(self._files, self._folder, self._name, encode_offsets(offsets), sync=True)
                    self._newest = version

        return work

    def store(self) -> None:
        """Durable on return."""
        self.prepare()()
