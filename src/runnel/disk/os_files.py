"""The operating system's files."""

import errno
import fcntl
import os
import resource
from collections.abc import Sequence

from runnel.ports.files import Bytes

OPEN_FILES_MAX = 4000
"""Segment files held open: enough for the busy ones. Sockets need the other half of a process's limit."""

FILE_MODE, FOLDER_MODE = 0o600, 0o700
"""New files are for the user of the broker only."""

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_pread = os.pread
_RWF_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
_PROBE_STEP_BYTES = 32 * 1024
"""One page is probed in this many bytes: the kernel reads ahead and evicts in larger units."""
_probed = (bytearray(1),)
"""The buffer of probes, whose contents are ignored."""
_datasync = getattr(os, "fdatasync", os.fsync)
_BUFFERS_PER_CALL_MAX = 1024
"""IOV_MAX on Linux: one call takes no more buffers."""


class OsFile:
    """A file descriptor that is closed when it is no longer referenced."""

    # Methods, not functions bound to the descriptor: a call keeps a reference to the file.
    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor

    def pread(self, length: int, position: int) -> bytes:
        return _pread(self._descriptor, length, position)

    def pread_resident(self, length: int, position: int) -> bytes:
        if not _RWF_NOWAIT:
            return _pread(self._descriptor, length, position)
        buffer = bytearray(length)
        try:
            size = os.preadv(self._descriptor, (buffer,), position, _RWF_NOWAIT)
        except BlockingIOError:
            return b""
        except OSError as failure:
            if failure.errno in (errno.EOPNOTSUPP, errno.EINVAL):
                return _pread(self._descriptor, length, position)
            raise
        return bytes(buffer if size == length else memoryview(buffer)[:size])

    def is_resident(self, position: int, length: int) -> bool:
        if not _RWF_NOWAIT:
            return True
        last = position + length - 1
        try:
            for probe in range(position, last, _PROBE_STEP_BYTES):
                os.preadv(self._descriptor, _probed, probe, _RWF_NOWAIT)
            os.preadv(self._descriptor, _probed, last, _RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError as failure:
            if failure.errno in (errno.EOPNOTSUPP, errno.EINVAL):
                return True
            raise
        return True

    def truncate(self, size_bytes: int) -> None:
        os.ftruncate(self._descriptor, size_bytes)

    def datasync(self) -> None:
        _datasync(self._descriptor)

    def pwritev(self, buffers: Sequence[Bytes], position: int) -> int:
        if len(buffers) <= _BUFFERS_PER_CALL_MAX:
            return os.pwritev(self._descriptor, buffers, position)
        return os.pwritev(self._descriptor, buffers[:_BUFFERS_PER_CALL_MAX], position)

    def size_bytes(self) -> int:
        return os.fstat(self._descriptor).st_size

    def __del__(self) -> None:
        os.close(self._descriptor)


class OsFiles:
    """Files of the operating system."""

    def open(self, path: str, *, create: bool = False) -> OsFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return OsFile(os.open(path, flags, FILE_MODE))

    def read(self, path: str) -> bytes:
        with open(path, "rb", buffering=0) as file:
            return file.readall()

    def write(self, path: str, data: bytes, *, sync: bool) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        with open(os.open(path, flags, FILE_MODE), "wb", buffering=0) as file:
            rest = memoryview(data)
            while rest:
                rest = rest[file.write(rest) :]
            if sync:
                os.fsync(file.fileno())

    def names(self, folder: str) -> list[str]:
        return os.listdir(folder)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size_bytes(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def make_folder(self, path: str) -> None:
        os.makedirs(path, FOLDER_MODE, exist_ok=True)

    def remove_folder(self, path: str) -> None:
        os.rmdir(path)

    def sync_folder(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync_volume(self, path: str) -> None:
        os.sync()

    def boot_id(self) -> str:
        try:
            return self.read(_BOOT_ID).decode("ascii").strip()
        except OSError:
            # Linux only.
            return ""

    def open_files_max(self) -> int:
        soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return max(min(OPEN_FILES_MAX, soft_limit // 2), 1)

    def space_bytes(self, path: str) -> tuple[int, int]:
        usage = os.statvfs(path)
        return usage.f_blocks * usage.f_frsize, usage.f_bavail * usage.f_frsize

    def lock(self, path: str) -> OsFile:
        file = self.open(path, create=True)
        # The first excludes others in this process too, the second Apache Kafka on the same folder.
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        return file
