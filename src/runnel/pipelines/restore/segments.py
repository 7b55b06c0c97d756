"""Segment files of one partition: which stretches of them are sound, and which transactions in them count.

The files are read as they are and never changed. What is damaged is passed over to the next batch whose
checksum is right; damage is reported, never hidden.
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
"""A segment that Kafka's cleaner has finished, and not yet put in the place of those that it replaces."""


@dataclass(slots=True)
class Stretch:
    """Whole sound batches, one after the other, in a file."""

    path: str
    start: int
    end: int
    offset_min: int
    """Batches below were in a file before: one that a compaction cut short has not replaced yet."""


@dataclass(slots=True)
class OpenTransaction:
    """A transaction whose end is in no file of the partition."""

    producer_id: int
    epoch: int
    start_offset: int
    last_offset: int
    records: int


@dataclass(slots=True)
class Scan:
    """The contents of the files of one partition."""

    topic: str
    partition: int
    log_start_offset: int
    next_offset: int = 0
    records: int = 0
    """As many as a reader of committed records would see, unless a batch contains the log start offset."""
    stretches: list[Stretch] = field(default_factory=list)
    voided: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """Per producer id, from which to which offset its transactional records do not count."""
    open: list[OpenTransaction] = field(default_factory=list)
    """Transactions without an end: they do not count, unless their coordinator knows better."""
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """Offsets between two files that are in neither: from which, and which is the next that is there."""
    torn_bytes: int = 0
    """What the last file ends with and is no whole batch: a write that a crash cut off."""
    damages: list[str] = field(default_factory=list)
    """Sentences about what is lost."""
    notes: list[str] = field(default_factory=list)
    """Sentences about what should be known and is no loss."""

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def counts(self, header: BatchHeader) -> bool:
        """Are there records in this batch that a reader of committed records would see?"""
        if header.is_control or header.record_count == 0 or header.next_offset <= self.log_start_offset:
            return False
        ranges = self.voided.get(header.producer_id) if header.is_transactional else None
        if not ranges:
            return True
        place = bisect_right(ranges, (header.base_offset, 2**63)) - 1
        return place < 0 or header.base_offset > ranges[place][1]

    def commit(self, transaction: OpenTransaction) -> None:
        """Let an open transaction count after all."""
        self.open.remove(transaction)
        self.voided[transaction.producer_id].remove((transaction.start_offset, transaction.last_offset))
        self.records += transaction.records


def segment_files(folder: Path) -> list[Path]:
    """The files of a log in order, as a start of the broker would see them after a compaction cut short."""
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
    """The offset that a segment file is named after, whatever follows it in the name."""
    return int(path.name.partition(".")[0])


def _apply_swap(folder: Path, names: set[str], files: dict[int, str]) -> None:
    try:
        swap = decode_swap((folder / COMPACTION_SWAP).read_bytes())
    except DamagedSwap:
        return  # never decided: the old files are complete
    for offset in swap.replaced:
        if offset != swap.base_offset or offset_name(offset, LOG) + CLEANED in names:
            files.pop(offset, None)
    if swap.base_offset is not None and (new := offset_name(swap.base_offset, LOG) + CLEANED) in names:
        files[swap.base_offset] = new


def scan(folder: Path, topic: str, partition: int, log_start_offset: int) -> Scan:
    """Read all batches of a partition once, each checked against its checksum."""
    found = Scan(topic, partition, log_start_offset)
    transactions = _Transactions(found)
    files = segment_files(folder)
    expected = 0 if not files else base_offset_of(files[0])
    for path in files:
        base_offset, told = base_offset_of(path), len(found.damages)
        if base_offset > expected:
            found.gaps.append((expected, base_offset))
        _scan_file(path, path == files[-1], found, transactions)
        # Behind damage, the expected start of the next file is unknown.
        is_sound = len(found.damages) == told
        expected = max(found.next_offset, base_offset) if is_sound else 2**63
    transactions.end()
    return found


@dataclass(slots=True)
class _Transactions:
    """Transactions as they go by."""

    found: Scan
    open: dict[int, OpenTransaction] = field(default_factory=dict)
    """By producer id."""

    def saw(self, header: BatchHeader, batch: memoryview) -> None:
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
        """What is still open does not count, unless it is known to be committed."""
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
            voided = self.found.voided.setdefault(producer_id, [])
            voided.append((transaction.start_offset, last_offset))


def _scan_file(path: Path, is_last: bool, found: Scan, transactions: _Transactions) -> None:
    size_bytes = os.path.getsize(path)
    position = 0
    with open(path, "rb", buffering=0) as file:
        while position < size_bytes:
            stretch = Stretch(str(path), position, position, found.next_offset)
            for place, header, batch in walk(file.fileno(), stretch.start, size_bytes):
                if header.base_offset >= found.next_offset:
                    transactions.saw(header, batch)
                    found.next_offset = header.next_offset
                stretch.end = place + header.size_bytes
            position = stretch.end
            if position > stretch.start:
                found.stretches.append(stretch)
            if position >= size_bytes:
                return
            sound = _next_sound(file.fileno(), position + 1, size_bytes, found.next_offset)
            if sound is None and is_last:
                found.torn_bytes = size_bytes - position
                return
            found.damages.append(_told(found, path, position, size_bytes, sound))
            position = size_bytes if sound is None else sound[0]


def _told(
    found: Scan, path: Path, position: int, size_bytes: int, sound: tuple[int, BatchHeader] | None
) -> str:
    where = f"{found.topic}-{found.partition}: {path.name}, position {position}"
    if sound is None:
        return f"{where}: no sound batch follows; offsets from {found.next_offset} on are lost to its end"
    lost = f"offsets {found.next_offset} to {sound[1].base_offset - 1} are lost"
    return f"{where}: {sound[0] - position} bytes are damaged, {lost}"


def walk(descriptor: int, position: int, end: int) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """(position, header, bytes) of sound batches from here up to the first that is not."""
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
        return memoryview(b"")  # a place on the disk that cannot be read: as damaged as a wrong checksum


def _next_sound(descriptor: int, position: int, end: int, offset_min: int) -> tuple[int, BatchHeader] | None:
    """Where the next batch begins whose checksum is valid and whose offsets continue."""
    while position + HEADER_BYTES <= end:
        window = bytes(_read(descriptor, position, end, CHUNK_BYTES))
        # Only magic bytes are looked at: all else of a header may be anything.
        place = window.find(MAGIC, MAGIC_POSITION)
        while place >= 0:
            candidate = position + place - MAGIC_POSITION
            header = _header_at(descriptor, candidate, end, window[place - MAGIC_POSITION :][:12])
            if header is not None and header.base_offset >= offset_min:
                return candidate, header
            place = window.find(MAGIC, place + 1)
        position += max(len(window) - MAGIC_POSITION, CHUNK_BYTES if not window else 1)
    return None


def _header_at(descriptor: int, position: int, end: int, prefix: bytes) -> BatchHeader | None:
    length = int.from_bytes(prefix[8:12], "big", signed=True)
    if length < BATCH_LENGTH_MIN or position + LENGTH_PREFIX_BYTES + length > end:
        return None
    for _, header, _ in walk(descriptor, position, position + LENGTH_PREFIX_BYTES + length):
        return header
    return None
