"""A lease for a thread to use the file names of a log, until the event loop revokes it.

A removed log's folder gets another name, and a new log may take the old one while a thread still works for
the removed one. Revoking never waits for the disk: the lock is held while a file is opened, renamed or
removed, not while it is written or synced. Files that are open stay those of the former folder.
"""

import errno
from threading import Lock

from runnel.disk.staged_write import write_all
from runnel.ports.files import File, Files


class FolderLease:
    """The files of a file system; every use of a name fails with FileNotFoundError once it is revoked."""

    __slots__ = ("_files", "_names", "_writing", "is_revoked")

    def __init__(self, files: Files) -> None:
        self._files = files
        self._names = Lock()
        self._writing = Lock()
        self.is_revoked = False

    def revoke(self) -> None:
        """Once this returns, the holder uses no file name; it may still write to files that are open."""
        with self._names:
            self.is_revoked = True

    def wait(self) -> None:
        """After `revoke`: wait for the disk until the holder does not write to open files either."""
        with self._writing:
            pass

    def _check(self, path: str) -> None:
        if self.is_revoked:
            raise FileNotFoundError(errno.ENOENT, "the folder belongs to another log or state", path)

    def open(self, path: str, *, create: bool = False) -> File:
        with self._names:
            self._check(path)
            return self._files.open(path, create=create)

    def read(self, path: str) -> bytes:
        file = self.open(path)
        return file.pread(file.size_bytes(), 0)

    def write(self, path: str, data: bytes, *, sync: bool) -> None:
        with self._writing:
            file = self.open(path, create=True)
            file.truncate(0)
            write_all(file, [data], 0)
            if sync:
                file.datasync()

    def names(self, folder: str) -> list[str]:
        with self._names:
            self._check(folder)
            return self._files.names(folder)

    def exists(self, path: str) -> bool:
        with self._names:
            self._check(path)
            return self._files.exists(path)

    def size_bytes(self, path: str) -> int:
        return self._files.size_bytes(path)

    def modified_ms(self, path: str) -> int:
        return self._files.modified_ms(path)

    def rename(self, source: str, target: str) -> None:
        with self._names:
            self._check(source)
            self._files.rename(source, target)

    def remove(self, path: str) -> None:
        with self._names:
            self._check(path)
            self._files.remove(path)

    def make_folder(self, path: str) -> None:
        with self._names:
            self._check(path)
            self._files.make_folder(path)

    def remove_folder(self, path: str) -> None:
        with self._names:
            self._check(path)
            self._files.remove_folder(path)

    def sync_folder(self, path: str) -> None:
        with self._names:
            self._check(path)
        # Should the name change its meaning now, another folder is synced, which does no harm: the lease is
        # revoked then, and nothing follows from this sync.
        self._files.sync_folder(path)

    def sync_volume(self, path: str) -> None:
        self._files.sync_volume(path)

    def boot_id(self) -> str:
        return self._files.boot_id()

    def open_files_max(self) -> int:
        return self._files.open_files_max()

    def space_bytes(self, path: str) -> tuple[int, int]:
        return self._files.space_bytes(path)

    def lock(self, path: str) -> object:
        return self._files.lock(path)
