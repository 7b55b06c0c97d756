"""An in-memory file system with injected faults: lost unsynced data, torn writes, full disk, I/O errors.

Every file and directory has two states: what the process sees, and what survives a power failure. `datasync`
makes writes durable, `sync_folder` names; a power failure keeps a random part of the rest.
"""

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from runnel.ports.files import Bytes

CAPACITY_BYTES = 2**40
"""The size of a volume that does not become full."""

SECTOR_BYTES = 512
"""Unit of atomic disk writes."""

Fault = Callable[[str, str], None]
"""Called with (operation, path) before an operation; raises the error to inject."""


class PowerFailure(BaseException):
    """The machine loses power here. Not an Exception: no handler in the process may catch it."""


@dataclass(slots=True, eq=False)
class _Content:
    """The bytes of a file: as visible, as durable, and the pending changes between the two."""

    visible: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)
    """(position, bytes written) or (size, None) for a truncation."""
    modified_ms: int = 0

    def write(self, position: int, data: bytes) -> None:
        _write(self.visible, position, data)
        self.pending.append((position, data))

    def truncate(self, size_bytes: int) -> None:
        _resize(self.visible, size_bytes)
        self.pending.append((size_bytes, None))

    def sync(self) -> None:
        for position, data in self.pending:
            if data is None:
                _resize(self.durable, position)
            else:
                _write(self.durable, position, data)
        self.pending.clear()

    def lose_power(self, random: Random) -> None:
        """Keep the durable state and of each pending change all, nothing or a part."""
        for position, data in self.pending:
            draw = random.random()
            if draw < 0.4:
                continue
            if data is None:
                _resize(self.durable, position)
            elif draw < 0.7:
                _write(self.durable, position, data)
            else:
                self._write_torn(position, data, random)
        self.pending.clear()
        self.visible = bytearray(self.durable)

    def _write_torn(self, position: int, data: bytes, random: Random) -> None:
        if random.random() < 0.3 and position >= len(self.durable):
            # The new size is durable, the bytes are not.
            data = bytes(len(data))
        for start in range(0, len(data), SECTOR_BYTES):
            if random.random() < 0.6:
                _write(self.durable, position + start, data[start : start + SECTOR_BYTES])


@dataclass(slots=True, eq=False)
class _Directory:
    """The entries of a directory: as visible, as durable, and the pending changes in order."""

    visible: dict[str, "_Content | _Directory"] = field(default_factory=dict)
    durable: dict[str, "_Content | _Directory"] = field(default_factory=dict)
    pending: list[dict[str, "_Content | _Directory | None"]] = field(default_factory=list)
    """Each change sets entries atomically; None removes one."""

    def change(self, names: dict[str, "_Content | _Directory | None"]) -> None:
        _apply(self.visible, names)
        self.pending.append(names)

    def sync(self) -> None:
        for names in self.pending:
            _apply(self.durable, names)
        self.pending.clear()

    def sync_all(self) -> None:
        self.sync()
        for node in self.durable.values():
            if isinstance(node, _Directory):
                node.sync_all()
            else:
                node.sync()

    def lose_power(self, random: Random) -> None:
        for names in self.pending[: random.randint(0, len(self.pending))]:
            _apply(self.durable, names)
        self.pending.clear()
        self.visible = dict(self.durable)
        for node in self.visible.values():
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
        self._files.inject_faults("pread", self.path)
        return bytes(self._content.visible[position : position + length])

    def pread_resident(self, length: int, position: int) -> bytes:
        return self.pread(length, position) if self.is_resident(position, length) else b""

    def is_resident(self, position: int, length: int) -> bool:
        return self._files.is_resident(self.path, position, length)

    def pwritev(self, buffers: Sequence[Bytes], position: int) -> int:
        self._files.inject_faults("pwritev", self.path)
        data = b"".join(buffers)
        room = self._files.writable_bytes(self._content, position, len(data))
        if data and room == 0:
            raise OSError(errno.ENOSPC, "no space left on device", self.path)
        self._content.write(position, data[:room])
        self._content.modified_ms = self._files.now_ms
        return room

    def truncate(self, size_bytes: int) -> None:
        self._files.inject_faults("truncate", self.path)
        self._content.truncate(size_bytes)

    def datasync(self) -> None:
        try:
            self._files.inject_faults("datasync", self.path)
        except OSError:
            # The kernel reports a failed write-back once, then marks the pages clean.
            self._content.pending.clear()
            raise
        self._content.sync()

    def size_bytes(self) -> int:
        return len(self._content.visible)


class SimFiles:
    """An in-memory file system with a single volume. Paths are absolute."""

    def __init__(self, root: "_Directory | None" = None) -> None:
        self.capacity_bytes = CAPACITY_BYTES
        self.now_ms = 0
        """Modification time of written files."""
        self.fault: Fault | None = None
        self.is_resident: Callable[[str, int, int], bool] = lambda path, position, length: True
        """Whether these bytes are in the page cache."""
        self.operations = 0
        """Number of modifying operations so far."""
        self.power_failure_at = -1
        """Number of the modifying operation at which power fails; -1 for never."""
        self.on_power_failure: Callable[[], None] = lambda: None
        self.boots = 1
        """How many times the machine has started."""
        self._root = _Directory() if root is None else root

    # The interface of ports.files.Files.

    def open(self, path: str, *, create: bool = False) -> SimFile:
        directory, name = self._parent(path)
        content = directory.visible.get(name)
        if content is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self.inject_faults("create", path)
            content = _Content(modified_ms=self.now_ms)
            directory.change({name: content})
        if isinstance(content, _Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
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
        return list(self._directory(folder).visible)

    def exists(self, path: str) -> bool:
        try:
            directory, name = self._parent(path)
        except FileNotFoundError:
            return False
        return not name or name in directory.visible

    def size_bytes(self, path: str) -> int:
        return self.open(path).size_bytes()

    def modified_ms(self, path: str) -> int:
        return self._content(path).modified_ms

    def rename(self, source: str, target: str) -> None:
        directory, name = self._parent(source)
        target_directory, target_name = self._parent(target)
        if name not in directory.visible:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        if target_directory is not directory:
            raise OSError(errno.EXDEV, "renames across directories are not simulated", source)
        self.inject_faults("rename", source)
        directory.change({target_name: directory.visible[name], name: None})

    def remove(self, path: str) -> None:
        self._content(path)
        self.inject_faults("remove", path)
        directory, name = self._parent(path)
        directory.change({name: None})

    def make_folder(self, path: str) -> None:
        if self.exists(path):
            return
        self.make_folder(path.rpartition("/")[0])
        self.inject_faults("make_folder", path)
        directory, name = self._parent(path)
        directory.change({name: _Directory()})

    def remove_folder(self, path: str) -> None:
        if self._directory(path).visible:
            raise OSError(errno.ENOTEMPTY, "directory not empty", path)
        self.inject_faults("remove_folder", path)
        directory, name = self._parent(path)
        directory.change({name: None})

    def sync_folder(self, path: str) -> None:
        self.inject_faults("sync_folder", path)
        self._directory(path).sync()

    def sync_volume(self, path: str) -> None:
        self.inject_faults("sync_volume", path)
        self._root.sync_all()

    def boot_id(self) -> str:
        return f"boot-{self.boots}"

    def open_files_max(self) -> int:
        return 100

    def space_bytes(self, path: str) -> tuple[int, int]:
        return self.capacity_bytes, max(self.capacity_bytes - _used_bytes(self._root), 0)

    def lock(self, path: str) -> object:
        return self.open(path, create=True)

    # Fault injection.

    def lose_power(self, random: Random) -> None:
        """Lose all or a part of what is not durable. Open files are invalid afterwards."""
        self._root.lose_power(random)
        self.boots += 1
        self.power_failure_at = -1
        self.fault = None

    def handed_over(self) -> "SimFiles":
        """The same volume for the next process; this one can no longer change it."""
        self.power_failure_at = 0
        files = SimFiles(self._root)
        files.capacity_bytes, files.now_ms, files.boots = self.capacity_bytes, self.now_ms, self.boots
        return files

    def copied(self) -> "SimFiles":
        """A copy of the volume as it is now, all of it durable."""
        files = SimFiles(_copy(self._root))
        files.boots = self.boots
        return files

    def flip_bit(self, path: str, position: int, bit: int = 0) -> None:
        """Corrupt a file in place."""
        content = self._content(path)
        content.sync()
        content.visible[position] ^= 1 << bit
        content.durable[position] ^= 1 << bit

    def cut(self, path: str, size_bytes: int) -> None:
        """Lose the end of a file."""
        content = self._content(path)
        content.sync()
        _resize(content.visible, size_bytes)
        _resize(content.durable, size_bytes)

    def durable_bytes(self, path: str) -> bytes:
        """What of a file survives a power failure."""
        directory, name = self._parent(path)
        content = directory.durable.get(name)
        return bytes(content.durable) if isinstance(content, _Content) else b""

    def paths(self, folder: str) -> list[str]:
        """All files below a folder."""
        found = []
        for name in self.names(folder):
            path = f"{folder}/{name}"
            if isinstance(self._directory(folder).visible[name], _Directory):
                found += self.paths(path)
            else:
                found.append(path)
        return found

    @property
    def has_lost_power(self) -> bool:
        """True after the power failure."""
        return 0 <= self.power_failure_at <= self.operations

    def inject_faults(self, operation: str, path: str) -> None:
        """Count a modifying operation; it may fail, or power may fail."""
        if operation != "pread":
            self.operations += 1
            if self.has_lost_power:
                self.on_power_failure()
                raise PowerFailure(f"before {operation} of {path}")
        if self.fault is not None:
            self.fault(operation, path)

    def writable_bytes(self, content: _Content, position: int, length: int) -> int:
        """How many of these bytes at this position fit on the volume."""
        if self.capacity_bytes == CAPACITY_BYTES:
            return length
        growth = max(position + length - max(len(content.visible), position), 0)
        free = max(self.capacity_bytes - _used_bytes(self._root), 0)
        return length - max(growth - free, 0)

    def _directory(self, path: str) -> _Directory:
        directory = self._root
        for name in filter(None, path.split("/")):
            node = directory.visible.get(name)
            if not isinstance(node, _Directory):
                raise FileNotFoundError(errno.ENOENT, "no such directory", path)
            directory = node
        return directory

    def _parent(self, path: str) -> tuple[_Directory, str]:
        directory, _, name = path.rpartition("/")
        return self._directory(directory), name

    def _content(self, path: str) -> _Content:
        directory, name = self._parent(path)
        content = directory.visible.get(name)
        if not isinstance(content, _Content):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return content


def _copy(directory: _Directory) -> _Directory:
    names: dict[str, _Content | _Directory] = {}
    for name, node in directory.visible.items():
        if isinstance(node, _Directory):
            names[name] = _copy(node)
        else:
            names[name] = _Content(bytearray(node.visible), bytearray(node.visible), [], node.modified_ms)
    return _Directory(names, dict(names))


def _used_bytes(directory: _Directory) -> int:
    return sum(
        _used_bytes(node) if isinstance(node, _Directory) else len(node.visible)
        for node in directory.visible.values()
    )


def _apply(
    names: "dict[str, _Content | _Directory]", change: "dict[str, _Content | _Directory | None]"
) -> None:
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
