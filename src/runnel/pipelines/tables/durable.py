"""Local files that are synced to disk before they are referenced."""

import os
from collections.abc import Iterable
from contextlib import suppress
from io import FileIO as RawFile
from pathlib import Path
from typing import Any

from pyiceberg.io import OutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO

SCHEME = "file"
LEVELS_ABOVE = 2
"""The folders above a table: its namespace and the warehouse."""


def local_path(location: str) -> str | None:
    """The path of a local file; None for a remote location."""
    scheme, separator, path = location.partition(":")
    if not separator:
        return location
    # Hadoop writes file:/path, others file:///path.
    return "/" + path.lstrip("/") if scheme == SCHEME else None


def make_durable(locations: Iterable[str], table_location: str) -> None:
    """Sync local files of a table, with their parent folders."""
    table = local_path(table_location)
    folders: set[Path] = set()
    for location in locations:
        path = local_path(location)
        if path is not None:
            _sync(path)
            above = list(Path(path).parents)
            within = above.index(Path(table)) if table is not None and Path(table) in above else 0
            folders.update(above[: within + LEVELS_ABOVE + 1])
    for folder in folders:
        _sync_folder(folder)


def _sync(path: str | Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    # A folder without permission is outside the warehouse.
    with suppress(PermissionError):
        _sync(folder)


class DurableFileIO(PyArrowFileIO):
    """A FileIO whose files are durable once closed."""

    def new_output(self, location: str) -> Any:
        path = local_path(location)
        return super().new_output(location) if path is None else DurableFile(location, path, self)


class DurableFile(OutputFile):
    """A local output file."""

    def __init__(self, location: str, path: str, files: DurableFileIO) -> None:
        super().__init__(location)
        self._path = path
        self._files = files

    def __len__(self) -> int:
        return os.stat(self._path).st_size

    def exists(self) -> bool:
        return os.path.exists(self._path)

    def to_input_file(self) -> Any:
        return self._files.new_input(self.location)

    def create(self, overwrite: bool = False) -> Any:
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        return _SyncedFile(self._path, "wb" if overwrite else "xb")


class _SyncedFile(RawFile):
    """A file that is synced on close, together with its directory entry."""

    def write(self, data: Any) -> int:
        # A raw file may write less than requested.
        view = memoryview(data).cast("B")
        written = 0
        while written < len(view):
            written += super().write(view[written:])
        return written

    def close(self) -> None:
        if not self.closed:
            os.fsync(self.fileno())
            super().close()
            # The metadata folder, the table folder, and those above.
            for folder in list(Path(str(self.name)).parents)[: 2 + LEVELS_ABOVE]:
                _sync_folder(folder)
