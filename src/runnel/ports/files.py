"""The file operations of logs, replaceable by a simulator that injects faults."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

Bytes = bytes | bytearray | memoryview

Result = TypeVar("Result")


class File(Protocol):
    """An open file with positional reads and writes; closed with its last reference."""

    def fileno(self) -> int: ...

    def pread(self, length: int, position: int, /) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file."""
        ...

    def pread_resident(self, length: int, position: int, /) -> bytes:
        """Up to `length` bytes, as many as can be read without waiting for the disk; perhaps none.

        All of them where the file system cannot say.
        """
        ...

    def is_resident(self, position: int, length: int, /) -> bool:
        """True if these bytes can be read without waiting for the disk. A sample of the pages is probed.

        True where the file system cannot say.
        """
        ...

    def pwritev(self, buffers: Sequence[Bytes], position: int, /) -> int:
        """Write the buffers in sequence; returns the number of bytes written, which may be smaller."""
        ...

    def truncate(self, size_bytes: int, /) -> None: ...

    def datasync(self) -> None:
        """Make everything written so far, and the file's size, durable."""
        ...

    def size_bytes(self) -> int: ...


class Files(Protocol):
    """A file system. Every operation may raise OSError."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; FileNotFoundError unless `create`."""
        ...

    def read(self, path: str) -> bytes: ...

    def write(self, path: str, data: bytes, *, sync: bool) -> None:
        """Replace the contents of a file. Not atomic: see `disk.atomic`."""
        ...

    def names(self, folder: str) -> list[str]:
        """The entries of a directory, in no particular order."""
        ...

    def exists(self, path: str) -> bool: ...

    def size_bytes(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory; an existing file is replaced atomically."""
        ...

    def remove(self, path: str) -> None: ...

    def make_folder(self, path: str) -> None:
        """Create a directory and its parents unless they exist."""
        ...

    def remove_folder(self, path: str) -> None:
        """Remove an empty directory."""
        ...

    def sync_folder(self, path: str) -> None:
        """Make the entries of this directory durable."""
        ...

    def sync_volume(self, path: str) -> None:
        """Flush everything written so far to the volume of this path.

        Failures of single files are reported by their own `datasync` only.
        """
        ...

    def boot_id(self) -> str:
        """An id of this boot of the machine: what was written in it is intact, synced or not.

        Empty if it is not known.
        """
        ...

    def open_files_max(self) -> int:
        """How many files may be held open."""
        ...

    def space_bytes(self, path: str) -> tuple[int, int]:
        """(total, usable) bytes of the volume."""
        ...

    def lock(self, path: str) -> object:
        """Lock this file exclusively for the lifetime of the result. Raises BlockingIOError."""
        ...


class Workers(Protocol):
    """Threads for blocking file operations."""

    def submit(
        self, work: Callable[[], Result], done: Callable[[Result | None, BaseException | None], None]
    ) -> None:
        """Run `work` in a thread, then `done` with its result or failure on the submitting thread."""
        ...

    def run_all(self, works: Sequence[Callable[[], Result]]) -> list[Result | BaseException]:
        """Run all of these, concurrently if possible, and wait for their results or failures."""
        ...

    def drain(self) -> None:
        """Wait until nothing is in flight. Callbacks run later, as always."""
        ...

    def close(self) -> None:
        """Wait for work in flight, and accept no more."""
        ...
