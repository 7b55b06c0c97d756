"""What is committed in a log, as it was first seen, and comparisons of replicas with it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from runnel.batch.header import HEADER_BYTES, LENGTH_PREFIX_BYTES, checksum, unpack_header
from runnel.model.errors import DamagedLog
from runnel.ports.disk import FileSlice, PartitionLog
from runnel.sim.files import SimFiles
from runnel.sim.history import Anomaly

READ_BYTES = 64 * 1024

Batch = tuple[int, int, int]
"""(next offset, leader epoch, checksum)."""

ReadBatches = Callable[[int, int], Iterator[tuple[int, Batch]]]
"""The batches of a replica between two offsets, by their base offset."""


@dataclass(slots=True)
class CommittedLog:
    """The committed batches of one log; nothing may ever change them."""

    name: str
    is_compacted: bool = False
    """Batches may be missing, or be rewritten with fewer records."""
    end_offset: int = 0
    """The highest high watermark of any leader so far."""
    batches: dict[int, Batch] = field(default_factory=dict)
    verified: dict[object, int] = field(default_factory=dict)
    """Replica → the offset up to which it was compared."""

    def extend(self, replica: object, end_offset: int, read: ReadBatches, start_offset: int = 0) -> None:
        """A leader has committed everything below `end_offset`."""
        self.compare(replica, min(self.end_offset, end_offset), read, start_offset)
        if end_offset <= self.end_offset:
            return
        for base_offset, batch in self._read(replica, self.end_offset, end_offset, read):
            self.batches[base_offset] = batch
        self.end_offset = self.verified[replica] = end_offset

    def compare(self, replica: object, end_offset: int, read: ReadBatches, start_offset: int = 0) -> None:
        """The replica must have what is committed below `end_offset`, from where it was compared last.

        It has a snapshot of what is below `start_offset`.
        """
        first = max(self.verified.get(replica, 0), start_offset)
        if first >= end_offset:
            return
        for base_offset, batch in self._read(replica, first, end_offset, read):
            known = self.batches.get(base_offset)
            if known is not None and known != batch and not self.is_compacted:
                raise Anomaly(
                    f"{self.name}@{base_offset}: {replica} has {_text(batch)}, committed is {_text(known)}"
                )
        self.verified[replica] = end_offset

    def _read(
        self, replica: object, first: int, end_offset: int, read: ReadBatches
    ) -> Iterator[tuple[int, Batch]]:
        """The batches of a replica; unless the log is compacted, they must be complete."""
        offset = -1
        for base_offset, batch in read(first, end_offset):
            if not self.is_compacted and base_offset != offset >= 0:
                raise Anomaly(f"{self.name}: {replica} has no records from {offset} to {base_offset}")
            offset = batch[0]
            yield base_offset, batch
        if not self.is_compacted and offset < end_offset:
            raise Anomaly(f"{self.name}: {replica} ends at {offset}, committed is {end_offset}")

    def truncated(self, replica: object, end_offset: int) -> None:
        """A replica was truncated: what it writes there is compared again."""
        if self.verified.get(replica, 0) > end_offset:
            self.verified[replica] = end_offset


def batches_of(log: PartitionLog) -> ReadBatches:
    """The batches in a log on disk, committed or not."""

    def read(first: int, end: int) -> Iterator[tuple[int, Batch]]:
        for batch in read_batches(log, first, end):
            base_offset, _, epoch, _, crc, _, delta, *_ = unpack_header(batch)
            if crc != checksum(batch, 0, len(batch)):
                raise DamagedLog(f"the batch at offset {base_offset} does not match its checksum")
            yield base_offset, (base_offset + delta + 1, epoch, crc)

    return read


def read_batches(log: PartitionLog, first: int, end: int) -> Iterator[memoryview]:
    """The batches in a log on disk that begin between two offsets."""
    offset = max(first, log.log_start_offset)
    while offset < end:
        found = log.read(offset, READ_BYTES, end, at_least_one=True, may_block=True)
        data = memoryview(b"".join(bytes_of(part) for part in found.parts))
        if not data:
            return
        position = 0
        while position < len(data):
            base_offset, length, _, _, _, _, delta, *_ = unpack_header(data, position)
            size_bytes = length + LENGTH_PREFIX_BYTES
            offset = base_offset + delta + 1
            if base_offset >= first:
                yield data[position : position + size_bytes]
            position += size_bytes


def durable_end(files: SimFiles, folder: str, first: int) -> int:
    """The end of what of a log survives a power failure, whether the process knows it or not."""
    end = first
    for name in sorted(files.names(folder)):
        if name.endswith(".log"):
            data = files.durable_bytes(f"{folder}/{name}")
            position = 0
            while len(data) - position > HEADER_BYTES:
                base_offset, length, _, _, _, _, delta, *_ = unpack_header(data, position)
                position += length + LENGTH_PREFIX_BYTES
                if base_offset == end and position <= len(data):
                    end = base_offset + delta + 1
    return end


def bytes_of(part: "bytes | memoryview | FileSlice") -> bytes | memoryview:
    """The bytes of a part of what a log has read."""
    if isinstance(part, FileSlice):
        data: bytes = part.file.pread(part.length, part.position)  # type: ignore[attr-defined]
        return data
    return part


def _text(batch: Batch) -> str:
    next_offset, epoch, crc = batch
    return f"a batch up to {next_offset} of epoch {epoch} with checksum {crc:08x}"
