"""Scans the segment files of one partition for valid ranges and committed transactions.

The files are never changed. Damage is reported and skipped up to the next batch with a valid checksum.
"""

import os
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from runnel.batch.control import read_end_marker
from runnel.batch.errors import CorruptBatch
from runnel.batch.header import (
    BATCH_LENGTH_MIN,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    crc_is_valid,
    read_header,
)
from runnel.log.names import CLEANED, COMPACTION_SWAP, LOG, offset_name, offset_of
from runnel.log.swap import DamagedSwap, decode_swap
from runnel.model.ids import TopicPartition

CHUNK_BYTES = 4 * 1024 * 1024
KAFKA_SWAP = ".swap"
"""A segment that Kafka's cleaner has completed and not swapped in yet."""


@dataclass(slots=True)
class FileRange:
    """A range of consecutive valid batches in a file."""

    path: str
    start: int
    end: int
    offset_min: int
    """Skip batches below this offset: after an interrupted compaction they are also in an earlier file."""


@dataclass(slots=True)
class OpenTransaction:
    """A transaction without a marker in the partition."""

    producer_id: int
    epoch: int
    start_offset: int
    last_offset: int
    records: int


@dataclass(slots=True)
class Scan:
    """The result of scanning one partition."""

    topic: str
    partition: int
    log_start_offset: int
    next_offset: int = 0
    records: int = 0
    """Records visible to a read_committed consumer, unless a batch contains the log start offset."""
    ranges: list[FileRange] = field(default_factory=list)
    aborted_ranges: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """Offset ranges of aborted transactions, by producer id."""
    open: list[OpenTransaction] = field(default_factory=list)
    """Open transactions: treated as aborted, unless the coordinator's log has their outcome."""
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """Gaps between two files, as [first missing offset, next offset)."""
    torn_bytes: int = 0
    """Size of an incomplete batch at the end of the last file."""
    damages: list[str] = field(default_factory=list)
    """Descriptions of lost records."""
    notes: list[str] = field(default_factory=list)
    """Notes for the user that are not losses."""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def is_visible(self, header: BatchHeader) -> bool:
        """Does this batch have records visible to a read_committed consumer?"""
        if header.is_control or header.record_count == 0 or header.next_offset <= self.log_start_offset:
            return False
        ranges = self.aborted_ranges.get(header.producer_id) if header.is_transactional else None
        if not ranges:
            return True
        index = bisect_right(ranges, (header.base_offset, 2**63)) - 1
        return index < 0 or header.base_offset > ranges[index][1]

    def commit(self, transaction: OpenTransaction) -> None:
        """Mark an open transaction as committed."""
        self.open.remove(transaction)
        self.aborted_ranges[transaction.producer_id].remove(
            (transaction.start_offset, transaction.last_offset)
        )
        self.records += transaction.records


def segment_files(folder: Path) -> list[Path]:
    """The segment files in order, with an interrupted compaction completed as on broker start."""
    names = set(os.listdir(folder))
    files = {offset: name for name in names if (offset := offset_of(name, LOG)) is not None}
    for name in names:
        offset = offset_of(name, f"{LOG}{KAFKA_SWAP}")
        if offset is not None:
            files[offset] = name
    if COMPACTION_SWAP in names:
        _apply_swap(folder, names, files)
    return [folder / files[offset] for offset in sorted(files)]


def base_offset_of(path: Path) -> int:
    """The base offset in the name of a segment file, with any suffix."""
    return int(path.name.partition(".")[0])


def _apply_swap(folder: Path, names: set[str], files: dict[int, str]) -> None:
    try:
        swap = decode_swap((folder / COMPACTION_SWAP).read_bytes())
    except DamagedSwap:
        return  # not committed: the old files are complete
    for offset in swap.replaced:
        if offset != swap.base_offset or offset_name(offset, LOG) + CLEANED in names:
            files.pop(offset, None)
    if swap.base_offset is not None and (new := offset_name(swap.base_offset, LOG) + CLEANED) in names:
        files[swap.base_offset] = new


def scan(folder: Path, topic: str, partition: int, log_start_offset: int) -> Scan:
    """Read and verify all batches of a partition."""
    found = Scan(topic, partition, log_start_offset)
    transactions = _Transactions(found)
    files = segment_files(folder)
    expected = 0 if not files else base_offset_of(files[0])
    for path in files:
        base_offset, damages_before = base_offset_of(path), len(found.damages)
        if base_offset > expected:
            found.gaps.append((expected, base_offset))
        _scan_file(path, path == files[-1], found, transactions)
        # After damage, the expected base offset of the next file is unknown.
        is_sound = len(found.damages) == damages_before
        expected = max(found.next_offset, base_offset) if is_sound else 2**63
    transactions.end()
    return found


@dataclass(slots=True)
class _Transactions:
    """Tracks transactions during a scan."""

    found: Scan
    open: dict[int, OpenTransaction] = field(default_factory=dict)
    """By producer id."""

    def add(self, header: BatchHeader, batch: memoryview) -> None:
        if header.is_control:
            marker = read_end_marker(batch)
            if marker is not None and header.producer_id in self.open:
                self._ended(header.producer_id, header.last_offset, marker.committed)
            return
        records = header.record_count if header.next_offset > self.found.log_start_offset else 0
        if header.is_transactional:
            self._wrote(header, records)
        else:
            self.found.records += records

    def end(self) -> None:
        """Treat open transactions as aborted, unless the coordinator's log says otherwise."""
        for transaction in list(self.open.values()):
            self._ended(transaction.producer_id, self.found.next_offset, False)
            self.found.open.append(transaction)

    def _wrote(self, header: BatchHeader, records: int) -> None:
        transaction = self.open.get(header.producer_id)
        if transaction is None:
            transaction = OpenTransaction(header.producer_id, 0, header.base_offset, 0, 0)
            self.open[header.producer_id] = transaction
        transaction.epoch = header.producer_epoch
        transaction.records += records

    def _ended(self, producer_id: int, last_offset: int, is_committed: bool) -> None:
        transaction = self.open.pop(producer_id)
        transaction.last_offset = last_offset
        if is_committed:
            self.found.records += transaction.records
        else:
            aborted_ranges = self.found.aborted_ranges.setdefault(producer_id, [])
            aborted_ranges.append((transaction.start_offset, last_offset))


def _scan_file(path: Path, is_last: bool, found: Scan, transactions: _Transactions) -> None:
    size_bytes = os.path.getsize(path)
    position = 0
    with open(path, "rb", buffering=0) as file:
        while position < size_bytes:
            range_ = FileRange(str(path), position, position, found.next_offset)
            for start, header, batch in valid_batches(file.fileno(), range_.start, size_bytes):
                if header.base_offset >= found.next_offset:
                    transactions.add(header, batch)
                    found.next_offset = header.next_offset
                range_.end = start + header.size_bytes
            position = range_.end
            if position > range_.start:
                found.ranges.append(range_)
            if position >= size_bytes:
                return
            valid = _next_valid(file.fileno(), position + 1, size_bytes, found.next_offset)
            if valid is None and is_last:
                found.torn_bytes = size_bytes - position
                return
            found.damages.append(_damage_text(found, path, position, size_bytes, valid))
            position = size_bytes if valid is None else valid[0]


def _damage_text(
    found: Scan, path: Path, position: int, size_bytes: int, valid: tuple[int, BatchHeader] | None
) -> str:
    where = f"{found.topic}-{found.partition}: {path.name}, position {position}"
    if valid is None:
        lost = f"offsets from {found.next_offset} to the end of the file are lost"
        return f"{where}: no valid batch follows; {lost}"
    lost = f"offsets {found.next_offset} to {valid[1].base_offset - 1} are lost"
    return f"{where}: {valid[0] - position} bytes are damaged, {lost}"


def valid_batches(descriptor: int, position: int, end: int) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """(position, header, bytes) of each batch up to the first invalid one."""
    chunk, chunk_start = memoryview(b""), position
    while position < end:
        local = position - chunk_start
        if local + HEADER_BYTES > len(chunk):
            chunk, chunk_start, local = _read(descriptor, position, end, CHUNK_BYTES), position, 0
        try:
            header = read_header(chunk, local)
        except CorruptBatch:
            return
        if position + header.size_bytes > end:
            return
        if local + header.size_bytes > len(chunk):
            needed = max(header.size_bytes, CHUNK_BYTES)
            chunk, chunk_start, local = _read(descriptor, position, end, needed), position, 0
        if not crc_is_valid(chunk, local, header):
            return
        yield position, header, chunk[local : local + header.size_bytes]
        position += header.size_bytes


def _read(descriptor: int, position: int, end: int, size_bytes: int) -> memoryview:
    try:
        return memoryview(os.pread(descriptor, min(size_bytes, end - position), position))
    except OSError:
        return memoryview(b"")  # an unreadable sector is treated as damage


def _next_valid(descriptor: int, position: int, end: int, offset_min: int) -> tuple[int, BatchHeader] | None:
    """The next batch with a valid checksum and an offset of at least `offset_min`."""
    while position + HEADER_BYTES <= end:
        window = bytes(_read(descriptor, position, end, CHUNK_BYTES))
        # Candidates are found by the magic byte.
        index = window.find(MAGIC, MAGIC_POSITION)
        while index >= 0:
            candidate = position + index - MAGIC_POSITION
            header = _header_at(descriptor, candidate, end, window[index - MAGIC_POSITION :][:12])
            if header is not None and header.base_offset >= offset_min:
                return candidate, header
            index = window.find(MAGIC, index + 1)
        position += max(len(window) - MAGIC_POSITION, CHUNK_BYTES if not window else 1)
    return None


def _header_at(descriptor: int, position: int, end: int, prefix: bytes) -> BatchHeader | None:
    length = int.from_bytes(prefix[8:12], "big", signed=True)
    if length < BATCH_LENGTH_MIN or position + LENGTH_PREFIX_BYTES + length > end:
        return None
    for _, header, _ in valid_batches(descriptor, position, position + LENGTH_PREFIX_BYTES + length):
        return header
    return None
