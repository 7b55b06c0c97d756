"""Snapshots beside a log: `<end offset>-<epoch>.checkpoint`, as Kafka stores those of the metadata log.

A snapshot is written as `.part`, synced and renamed, so that a file with the final name is complete. It is
verified when it is read: its footer and checksums are checked by the caller.
"""

from collections.abc import Iterable, Iterator

from runnel.batch.errors import CorruptBatch
from runnel.batch.header import read_header
from runnel.disk.staged_write import write_all
from runnel.log.names import PART, snapshot_name, snapshot_of
from runnel.model.errors import StorageFailed
from runnel.model.ids import SnapshotId
from runnel.ports.files import Files


class SnapshotFiles:
    """The snapshots in the folder of one log. All methods but `ids` may block for long."""

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self._folder = folder

    def ids(self) -> list[SnapshotId]:
        """The complete snapshots, newest first."""
        try:
            names = self._files.names(self._folder)
        except FileNotFoundError:
            return []
        return sorted((found for found in map(snapshot_of, names) if found is not None), reverse=True)

    def write(self, snapshot: SnapshotId, batches: Iterable[bytearray]) -> None:
        """Store a snapshot; it is durable on return."""
        path = f"{self._folder}/{snapshot_name(snapshot)}"
        part = path + PART
        try:
            file = self._files.open(part, create=True)
            file.truncate(0)
            position = 0
            for batch in batches:
                write_all(file, [batch], position)
                position += len(batch)
            file.datasync()
            self._files.rename(part, path)
            self._files.sync_folder(self._folder)
        except OSError as error:
            raise StorageFailed(f"{path}: {error}") from error

    def read(self, snapshot: SnapshotId) -> list[memoryview]:
        """All batches of a snapshot. CorruptBatch if its bytes are not batches."""
        return self._read(snapshot_name(snapshot))

    def read_page(self, snapshot: SnapshotId, position: int, max_bytes: int) -> tuple[bytes, int]:
        """Bytes from a position on, and the size of the snapshot; FileNotFoundError if there is none."""
        path = f"{self._folder}/{snapshot_name(snapshot)}"
        try:
            file = self._files.open(path)
            return file.pread(max_bytes, position), file.size_bytes()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StorageFailed(f"{path}: {error}") from error

    def write_page(self, snapshot: SnapshotId, position: int, data: memoryview) -> None:
        """Add bytes to a snapshot that is received in pages; the page at 0 replaces earlier ones."""
        part = f"{self._folder}/{snapshot_name(snapshot)}{PART}"
        try:
            file = self._files.open(part, create=True)
            if position == 0:
                file.truncate(0)
            write_all(file, [data], position)
        except OSError as error:
            raise StorageFailed(f"{part}: {error}") from error

    def read_received(self, snapshot: SnapshotId) -> list[memoryview]:
        """All batches of a snapshot that was received and is not published."""
        return self._read(snapshot_name(snapshot) + PART)

    def publish_received(self, snapshot: SnapshotId) -> None:
        """Make a received snapshot durable and complete."""
        path = f"{self._folder}/{snapshot_name(snapshot)}"
        try:
            self._files.open(path + PART).datasync()
            self._files.rename(path + PART, path)
            self._files.sync_folder(self._folder)
        except OSError as error:
            raise StorageFailed(f"{path}: {error}") from error

    def remove_before(self, snapshot: SnapshotId) -> None:
        """Remove older snapshots, and what a crash left of any that was being written."""
        try:
            for name in self._files.names(self._folder):
                found = snapshot_of(name)
                is_older = found is not None and found < snapshot
                if is_older or (name.endswith(PART) and snapshot_of(name.removesuffix(PART)) is not None):
                    self._files.remove(f"{self._folder}/{name}")
        except OSError as error:
            raise StorageFailed(f"{self._folder}: {error}") from error

    def _read(self, name: str) -> list[memoryview]:
        path = f"{self._folder}/{name}"
        try:
            data = memoryview(self._files.read(path))
        except OSError as error:
            raise StorageFailed(f"{path}: {error}") from error
        return list(cut_batches(data))


def cut_batches(data: memoryview) -> Iterator[memoryview]:
    """The batches of a file. CorruptBatch if its bytes are not batches."""
    position = 0
    while position < len(data):
        size_bytes = read_header(data, position).size_bytes
        if position + size_bytes > len(data):
            raise CorruptBatch(f"the batch at {position} goes beyond the end of the file")
        yield data[position : position + size_bytes]
        position += size_bytes
