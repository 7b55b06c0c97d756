"""The few file operations that logs are made of, so that a simulator can lose, tear and refuse them."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

Bytes = bytes | bytearray | memoryview

Result = TypeVar("Result")


class File(Protocol):
    """An open file, read and written at given positions; closed when nobody holds it any more."""

    def fileno(self) -> int: ...

    def pread(self, length: int, position: int, /) -> bytes:
        """Up to `length` bytes; fewer only where the file ends."""
        ...

    def is_resident(self, position: int, length: int, /) -> bool:
        """Can these bytes be read without waiting for the disk? A sample of the pages is probed.

        True where the file system cannot say.
        """
        ...

    def pwritev(self, buffers: Sequence[Bytes], position: int, /) -> int:
        """Write the buffers one after the other; how many bytes went, which may be fewer than there were."""
        ...

    def truncate(self, size_bytes: int, /) -> None: ...

    def datasync(self) -> None:
        """Everything written so far, and the file's size, survives a power cut."""
        ...

    def size_bytes(self) -> int: ...


class Files(Protocol):
    """A file system. Every operation may raise OSError."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; FileNotFoundError unless `create`."""
        ...

    def read(self, path: str) -> bytes: ...

    def write(self, path: str, data: bytes, *, sync: bool) -> None:
        """Make the file be exactly `data`. Not atomic: see `disk.atomic`."""
        ...

    def names(self, folder: str) -> list[str]:
        """What stands in a folder, in no particular order."""
        ...

    def exists(self, path: str) -> bool: ...

    def size_bytes(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def rename(self, source: str, target: str) -> None:
        """Give a file or folder another name; a file of that name is replaced in one step."""
        ...

    def remove(self, path: str) -> None: ...

    def make_folder(self, path: str) -> None:
        """Make a folder and those above it; one that is there is left alone."""
        ...

    def remove_folder(self, path: str) -> None:
        """Remove an empty folder."""
        ...

    def sync_folder(self, path: str) -> None:
        """The names in this folder, as they are now, survive a power cut."""
        ...

    def sync_volume(self, path: str) -> None:
        """Everything written so far to the volume of this path reaches it before this returns.

        Failures of single files are told by their own `datasync` only.
        """
        ...

    def open_files_max(self) -> int:
        """How many files may reasonably be held open."""
        ...

    def space_bytes(self, path: str) -> tuple[int, int]:
        """(total, usable) bytes of the volume."""
        ...

    def lock(self, path: str) -> object:
        """Hold this file alone for as long as the result lives; BlockingIOError if another process does."""
        ...


class Workers(Protocol):
    """Threads for file work that may block."""

    def submit(
        self, work: Callable[[], Result], done: Callable[[Result | None, BaseException | None], None]
    ) -> None:
        """Run `work` elsewhere, then `done` with its result or failure on the thread that submitted it."""
        ...

    def run_all(self, works: Sequence[Callable[[], Result]]) -> list[Result | BaseException]:
        """Run all of these, side by side if possible, and wait for their results or failures."""
        ...

    def drain(self) -> None:
        """Wait until nothing is under way. Nobody is told of it here, but later, as always."""
        ...

    def close(self) -> None:
        """Wait for what is under way, and take nothing more."""
        ...
