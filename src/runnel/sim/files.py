"""A file system in memory that forgets what was not synced, tears writes, fills up and breaks on purpose.

Two truths are kept for every file and folder: what the process sees, and what a power cut would leave. Writes
move from the first to the second by `datasync`, names by `sync_folder`; a power cut keeps a part of the rest.
"""

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from runnel.ports.files import Bytes

SECTOR_BYTES = 512
"""What a disk writes whole or not at all."""

Fault = Callable[[str, str], None]
"""Called with (operation, path) before anything is changed; raises what the operation shall raise."""


class PowerCut(BaseException):
    """The machine stops here. Not an Exception: nothing in the process may handle it."""


@dataclass(slots=True, eq=False)
class _Content:
    """The bytes of one file: as seen, as they would survive, and the changes between the two."""

    seen: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)
    """(position, bytes written there) or (size, None) for a cut."""
    modified_ms: int = 0

    def write(self, position: int, data: bytes) -> None:
        _write(self.seen, position, data)
        self.pending.append((position, data))

    def truncate(self, size_bytes: int) -> None:
        _resize(self.seen, size_bytes)
        self.pending.append((size_bytes, None))

    def sync(self) -> None:
        for position, data in self.pending:
            if data is None:
                _resize(self.durable, position)
            else:
                _write(self.durable, position, data)
        self.pending.clear()

    def lose_power(self, random: Random) -> None:
        """Keep what is durable and, of every change behind it, all, nothing or a part."""
        for position, data in self.pending:
            luck = random.random()
            if luck < 0.4:
                continue
            if data is None:
                _resize(self.durable, position)
            elif luck < 0.7:
                _write(self.durable, position, data)
            else:
                self._write_torn(position, data, random)
        self.pending.clear()
        self.seen = bytearray(self.durable)

    def _write_torn(self, position: int, data: bytes, random: Random) -> None:
        if random.random() < 0.3 and position >= len(self.durable):
            # The new size reached the disk, the bytes did not.
            data = bytes(len(data))
        for start in range(0, len(data), SECTOR_BYTES):
            if random.random() < 0.6:
                _write(self.durable, position + start, data[start : start + SECTOR_BYTES])


@dataclass(slots=True, eq=False)
class _Folder:
    """The names in one folder: as seen, as they would survive, and the changes between the two in order."""

    seen: dict[str, "_Content | _Folder"] = field(default_factory=dict)
    durable: dict[str, "_Content | _Folder"] = field(default_factory=dict)
    pending: list[dict[str, "_Content | _Folder | None"]] = field(default_factory=list)
    """Each change sets names in one step; None takes one away."""

    def change(self, names: dict[str, "_Content | _Folder | None"]) -> None:
        _apply(self.seen, names)
        self.pending.append(names)

    def sync(self) -> None:
        for names in self.pending:
            _apply(self.durable, names)
        self.pending.clear()

    def sync_all(self) -> None:
        self.sync()
        for node in self.durable.values():
            if isinstance(node, _Folder):
                node.sync_all()
            else:
                node.sync()

    def lose_power(self, random: Random) -> None:
        for names in self.pending[: random.randint(0, len(self.pending))]:
            _apply(self.durable, names)
        self.pending.clear()
        self.seen = dict(self.durable)
        for node in self.seen.values():
            node.lose_power(random)


class SimFile:
    """An open file of a simulated file system."""

    __slots__ = ("_content", "_files", "path")

    def __init__(self, files: "SimFiles", content: _Content, path: str) -> None:
        self._files = files
        self._content = content
        self.path = path

    def fileno(self) -> int:
        raise OSError(errno.EBADF, "a simulated file has no descriptor", self.path)

    def pread(self, length: int, position: int) -> bytes:
        self._files.meet_faults("pread", self.path)
        return bytes(self._content.seen[position : position + length])

    def is_resident(self, position: int, length: int) -> bool:
        return self._files.is_resident(self.path, position, length)

    def pwritev(self, buffers: Sequence[Bytes], position: int) -> int:
        self._files.meet_faults("pwritev", self.path)
        data = b"".join(buffers)
        room = self._files.room_for(self._content, position, len(data))
        if data and room == 0:
            raise OSError(errno.ENOSPC, "no space left on device", self.path)
        self._content.write(position, data[:room])
        self._content.modified_ms = self._files.now_ms
        return room

    def truncate(self, size_bytes: int) -> None:
        self._files.meet_faults("truncate", self.path)
        self._content.truncate(size_bytes)

    def datasync(self) -> None:
        try:
            self._files.meet_faults("datasync", self.path)
        except OSError:
            # The kernel reports a failed write back once, then takes the pages for clean.
            self._content.pending.clear()
            raise
        self._content.sync()

    def size_bytes(self) -> int:
        return len(self._content.seen)


class SimFiles:
    """A file system in memory. Paths are absolute, folders need no drive, everything is one volume."""

    def __init__(self) -> None:
        self.capacity_bytes = 2**40
        self.now_ms = 0
        """The time that files are stamped with."""
        self.fault: Fault | None = None
        self.is_resident: Callable[[str, int, int], bool] = lambda path, position, length: True
        """Whether a probe of these bytes finds them in the page cache."""
        self.operations = 0
        """Changing operations so far: where a test may cut the power."""
        self.cut_power_at = -1
        """The number of the first changing operation that does not happen any more."""
        self._root = _Folder()

    # What ports.files.Files promises.

    def open(self, path: str, *, create: bool = False) -> SimFile:
        folder, name = self._parent(path)
        content = folder.seen.get(name)
        if content is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self.meet_faults("create", path)
            content = _Content(modified_ms=self.now_ms)
            folder.change({name: content})
        if isinstance(content, _Folder):
            raise IsADirectoryError(errno.EISDIR, "it is a folder", path)
        return SimFile(self, content, path)

    def read(self, path: str) -> bytes:
        return self.open(path).pread(2**62, 0)

    def write(self, path: str, data: bytes, *, sync: bool) -> None:
        file = self.open(path, create=True)
        file.truncate(0)
        if file.pwritev([data], 0) < len(data):
            raise OSError(errno.ENOSPC, "no space left on device", path)
        if sync:
            file.datasync()

    def names(self, folder: str) -> list[str]:
        return list(self._folder(folder).seen)

    def exists(self, path: str) -> bool:
        try:
            folder, name = self._parent(path)
        except FileNotFoundError:
            return False
        return not name or name in folder.seen

    def size_bytes(self, path: str) -> int:
        return self.open(path).size_bytes()

    def modified_ms(self, path: str) -> int:
        return self._content(path).modified_ms

    def rename(self, source: str, target: str) -> None:
        folder, name = self._parent(source)
        target_folder, target_name = self._parent(target)
        if name not in folder.seen:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        if target_folder is not folder:
            raise OSError(errno.EXDEV, "renames stay in their folder here", source)
        self.meet_faults("rename", source)
        folder.change({target_name: folder.seen[name], name: None})

    def remove(self, path: str) -> None:
        self._content(path)
        self.meet_faults("remove", path)
        folder, name = self._parent(path)
        folder.change({name: None})

    def make_folder(self, path: str) -> None:
        if self.exists(path):
            return
        self.make_folder(path.rpartition("/")[0])
        self.meet_faults("make_folder", path)
        folder, name = self._parent(path)
        folder.change({name: _Folder()})

    def remove_folder(self, path: str) -> None:
        if self._folder(path).seen:
            raise OSError(errno.ENOTEMPTY, "the folder is not empty", path)
        self.meet_faults("remove_folder", path)
        folder, name = self._parent(path)
        folder.change({name: None})

    def sync_folder(self, path: str) -> None:
        self.meet_faults("sync_folder", path)
        self._folder(path).sync()

    def sync_volume(self, path: str) -> None:
        self.meet_faults("sync_volume", path)
        self._root.sync_all()

    def open_files_max(self) -> int:
        return 100

    def space_bytes(self, path: str) -> tuple[int, int]:
        return self.capacity_bytes, max(self.capacity_bytes - _used_bytes(self._root), 0)

    def lock(self, path: str) -> object:
        return self.open(path, create=True)

    # What a test does to it.

    def lose_power(self, random: Random) -> None:
        """Forget what was not durable, or any part of it. Files that were open must not be used any more."""
        self._root.lose_power(random)
        self.cut_power_at = -1
        self.fault = None

    def flip_bit(self, path: str, position: int, bit: int = 0) -> None:
        """Damage a file where it lies."""
        content = self._content(path)
        content.sync()
        content.seen[position] ^= 1 << bit
        content.durable[position] ^= 1 << bit

    @property
    def is_cut(self) -> bool:
        """Has the power gone?"""
        return 0 <= self.cut_power_at <= self.operations

    def meet_faults(self, operation: str, path: str) -> None:
        """Count a changing operation; the power may go, or the test may have it fail."""
        if operation != "pread":
            self.operations += 1
            if self.is_cut:
                raise PowerCut(f"before {operation} of {path}")
        if self.fault is not None:
            self.fault(operation, path)

    def room_for(self, content: _Content, position: int, length: int) -> int:
        """How many of so many bytes at this position the volume has room for."""
        growth = max(position + length - max(len(content.seen), position), 0)
        free = max(self.capacity_bytes - _used_bytes(self._root), 0)
        return length - max(growth - free, 0)

    def _folder(self, path: str) -> _Folder:
        folder = self._root
        for name in filter(None, path.split("/")):
            node = folder.seen.get(name)
            if not isinstance(node, _Folder):
                raise FileNotFoundError(errno.ENOENT, "no such folder", path)
            folder = node
        return folder

    def _parent(self, path: str) -> tuple[_Folder, str]:
        folder, _, name = path.rpartition("/")
        return self._folder(folder), name

    def _content(self, path: str) -> _Content:
        folder, name = self._parent(path)
        content = folder.seen.get(name)
        if not isinstance(content, _Content):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return content


def _used_bytes(folder: _Folder) -> int:
    return sum(
        _used_bytes(node) if isinstance(node, _Folder) else len(node.seen) for node in folder.seen.values()
    )


def _apply(names: "dict[str, _Content | _Folder]", change: "dict[str, _Content | _Folder | None]") -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def _write(target: bytearray, position: int, data: bytes) -> None:
    if position > len(target):
        target.extend(bytes(position - len(target)))
    target[position : position + len(data)] = data


def _resize(target: bytearray, size_bytes: int) -> None:
    if size_bytes < len(target):
        del target[size_bytes:]
    else:
        target.extend(bytes(size_bytes - len(target)))
