"""The contents of segment files as rows, and their problems.

It is read-only, so the broker may be running; the active segment may then appear truncated, and its newest
index entries may not be on disk yet.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from struct import iter_unpack
from typing import TYPE_CHECKING, Any

from runnel.batch.compression import Compression
from runnel.batch.control import EndMarker, read_end_marker
from runnel.batch.errors import CorruptBatch
from runnel.batch.header import BatchHeader, crc_is_valid, read_header
from runnel.batch.records import Headers, iterate_records
from runnel.disk.opening import topic_id_of
from runnel.disk.walk import walk_headers_of_file
from runnel.log.aborted import ABORTED_LAYOUT, ENTRY_BYTES, AbortedTransaction
from runnel.log.names import ABORTED, INDEX, KEY, LOG, SNAPSHOT, TIME_INDEX, offset_of, partition_of
from runnel.log.producer_snapshot import DamagedSnapshot, decode_producers
from runnel.log.producers import Producer
from runnel.ports.files import Files

if TYPE_CHECKING:
    from runnel.disk.batch_cipher import BatchCipher
    from runnel.disk.keyring import Keyring


@dataclass(slots=True)
class SegmentRow:
    """A segment file; the rows of its batches follow."""

    path: str
    base_offset: int
    size_bytes: int


@dataclass(slots=True)
class BatchRow:
    """One batch."""

    position: int
    size_bytes: int
    header: BatchHeader
    compression: str
    crc_is_valid: bool | None
    """None if the batch is encrypted, and the key is not known."""
    marker: EndMarker | None
    """The end of a transaction, if this is a control batch with such a marker."""
    is_encrypted: bool = False


@dataclass(slots=True)
class RecordRow:
    """One record of the batch before it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(slots=True)
class IndexRow:
    """An index of the segment before it, compared with the segment."""

    path: str
    entries: int


@dataclass(slots=True)
class AbortedRow:
    """One aborted transaction whose end marker is in the segment before it."""

    path: str
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(slots=True)
class ProducerRow:
    """One producer in a snapshot file."""

    path: str
    producer: Producer


@dataclass(slots=True)
class ProblemRow:
    """A problem."""

    path: str
    position: int
    text: str


Row = SegmentRow | BatchRow | RecordRow | IndexRow | AbortedRow | ProducerRow | ProblemRow


def dump(
    files: Files, path: str, *, with_records: bool = False, keyring: "Keyring | None" = None
) -> Iterator[Row]:
    """The rows of a segment or another file of a log, of a partition directory, or of a data directory.

    Without a keyring, only the headers of encrypted batches are read.
    """
    if path.endswith(LOG):
        yield from _dump_segment(files, path, with_records, keyring)
    elif path.endswith(SNAPSHOT):
        yield from _dump_snapshot(files, path)
    elif path.endswith(ABORTED):
        yield from _dump_aborted(files, path)
    else:
        for name in sorted(files.names(path)):
            is_file = offset_of(name, LOG) is not None or offset_of(name, SNAPSHOT) is not None
            if is_file or partition_of(name) is not None:
                # A running broker may delete a segment or a topic meanwhile, which is not a problem.
                with suppress(FileNotFoundError):
                    yield from dump(files, f"{path}/{name}", with_records=with_records, keyring=keyring)


class _Reading:
    """How the batches of a segment are read."""

    def __init__(self, files: Files, path: str, keyring: "Keyring | None") -> None:
        self.is_encrypted = files.exists(path.removesuffix(LOG) + KEY)
        self.cipher: BatchCipher | None = None
        self.problem: str | None = None
        if self.is_encrypted and keyring is not None:
            try:
                self.cipher = _cipher(files, path, keyring)
            except (CorruptBatch, OSError) as error:
                self.problem = str(error)

    def clear(self, stored: bytes) -> bytes | None:
        """The batch; None if it cannot be decrypted. CorruptBatch if it was changed."""
        if self.cipher is not None:
            return self.cipher.decrypt(stored)
        return None if self.is_encrypted else stored


def _cipher(files: Files, path: str, keyring: "Keyring") -> "BatchCipher":
    folder, _, name = path.rpartition("/")
    topic_id = topic_id_of(files, folder)
    partition = partition_of(folder.rpartition("/")[2])
    base_offset = offset_of(name, LOG)
    if topic_id is None or partition is None or base_offset is None:
        raise CorruptBatch(f"{folder} is not the directory of a partition, to which the key is bound")
    return keyring.keys_of(partition, topic_id).load(files, folder, base_offset)


def _dump_segment(files: Files, path: str, with_records: bool, keyring: "Keyring | None") -> Iterator[Row]:
    size_bytes = files.size_bytes(path)
    base_offset = offset_of(path.rpartition("/")[2], LOG)
    yield SegmentRow(path, -1 if base_offset is None else base_offset, size_bytes)
    file = files.open(path)
    reading = _Reading(files, path, keyring)
    if reading.problem is not None:
        yield ProblemRow(path, 0, reading.problem)
    checks = _indexes_of(files, path, base_offset) if base_offset is not None else []
    next_offset = base_offset or 0
    position = 0
    try:
        for position, header in walk_headers_of_file(file, 0, size_bytes):
            stored = file.pread(header.size_bytes, position)
            yield from _dump_batch(path, reading, stored, position, header, with_records)
            if header.base_offset < next_offset:
                text = f"offset {header.base_offset} comes where {next_offset} or later was next"
                yield ProblemRow(path, position, text)
            next_offset = max(next_offset, header.next_offset)
            for check in checks:
                check.met(position, header)
    except CorruptBatch as error:
        yield ProblemRow(path, position, f"here or behind this batch the file is damaged: {error}")
    for check in checks:
        yield from check.rows()


def _dump_batch(
    path: str, reading: _Reading, stored: bytes, position: int, header: BatchHeader, with_records: bool
) -> Iterator[Row]:
    marker = problem = None
    records: list[RecordRow] = []
    is_valid: bool | None = None
    try:
        batch = reading.clear(stored)
    except CorruptBatch as error:
        batch, is_valid, problem = None, False, str(error)
    if batch is not None:
        is_valid = crc_is_valid(batch, 0, read_header(batch))
        if not is_valid:
            problem = f"the checksum of the batch at offset {header.base_offset} is wrong"
    if is_valid and batch is not None:
        try:
            if header.is_control:
                marker = read_end_marker(batch)
            if with_records:
                records = [
                    RecordRow(r.offset, r.timestamp, r.key, r.value, r.headers)
                    for r in iterate_records(batch)
                ]
        except CorruptBatch as error:
            problem = f"the records at offset {header.base_offset} cannot be read: {error}"
    yield BatchRow(
        position,
        header.size_bytes,
        header,
        _compression_name(header),
        is_valid,
        marker,
        reading.is_encrypted,
    )
    yield from records
    if problem is not None:
        yield ProblemRow(path, position, problem)


def _compression_name(header: BatchHeader) -> str:
    try:
        return Compression(header.compression).name.lower()
    except ValueError:
        return f"unknown ({header.compression})"


class _OffsetIndexCheck:
    """Each entry must refer to the batch that ends with its offset."""

    def __init__(self, path: str, entries: list[tuple[int, int]], base_offset: int) -> None:
        self._path = path
        self._count = len(entries)
        self._unmet = {position: base_offset + relative for relative, position in entries}

    def met(self, position: int, header: BatchHeader) -> None:
        if self._unmet.get(position) == header.last_offset:
            del self._unmet[position]

    def rows(self) -> Iterator[Row]:
        yield IndexRow(self._path, self._count)
        for position, offset in self._unmet.items():
            yield ProblemRow(self._path, 0, f"no batch at position {position} ends with offset {offset}")


class _TimeIndexCheck:
    """Each entry must refer to a batch with a larger timestamp than all before it."""

    def __init__(self, path: str, entries: list[tuple[int, int]], base_offset: int) -> None:
        self._path = path
        self._count = len(entries)
        self._unmet = {base_offset + relative: timestamp for timestamp, relative in entries}
        self._max_timestamp = -1

    def met(self, position: int, header: BatchHeader) -> None:
        if header.max_timestamp > self._max_timestamp:
            self._max_timestamp = header.max_timestamp
            if self._unmet.get(header.last_offset) == header.max_timestamp:
                del self._unmet[header.last_offset]

    def rows(self) -> Iterator[Row]:
        yield IndexRow(self._path, self._count)
        for offset, timestamp in self._unmet.items():
            yield ProblemRow(self._path, 0, f"no batch up to offset {offset} is the latest with {timestamp}")


class _AbortedCheck:
    """Each entry must have the producer id of its marker."""

    def __init__(self, path: str, entries: list[tuple[int, ...]], base_offset: int = -1) -> None:
        self._path = path
        self._entries = [AbortedTransaction(*columns) for _, *columns in entries]
        self._unmet = {entry.last_offset: entry.producer_id for entry in self._entries}
        self._end_offset = base_offset

    def met(self, position: int, header: BatchHeader) -> None:
        self._end_offset = header.next_offset
        if header.is_control and self._unmet.get(header.base_offset) == header.producer_id:
            del self._unmet[header.base_offset]

    def rows(self) -> Iterator[Row]:
        yield IndexRow(self._path, len(self._entries))
        for entry in self._entries:
            yield AbortedRow(self._path, *entry)
        for offset, producer_id in self._unmet.items():
            # A file that is older than the end of its segment may list what was truncated there.
            if offset < self._end_offset:
                yield ProblemRow(self._path, 0, f"no end marker of producer {producer_id} at offset {offset}")


class _BrokenIndex:
    """An unreadable index file."""

    def __init__(self, path: str, text: str) -> None:
        self._problem = ProblemRow(path, 0, text)

    def met(self, position: int, header: BatchHeader) -> None:
        """Nothing to compare with."""

    def rows(self) -> Iterator[Row]:
        yield self._problem


_IndexCheck = _OffsetIndexCheck | _TimeIndexCheck | _AbortedCheck | _BrokenIndex


def _indexes_of(files: Files, segment_path: str, base_offset: int) -> list[_IndexCheck]:
    checks: list[_IndexCheck] = []
    kinds: tuple[tuple[str, str, int, Callable[[str, list[Any], int], _IndexCheck]], ...] = (
        (INDEX, ">II", 8, _OffsetIndexCheck),
        (TIME_INDEX, ">qI", 12, _TimeIndexCheck),
        (ABORTED, ABORTED_LAYOUT, ENTRY_BYTES, _AbortedCheck),
    )
    for suffix, layout, entry_bytes, check in kinds:
        path = segment_path.removesuffix(LOG) + suffix
        if not files.exists(path):
            continue
        data = files.read(path)
        if len(data) % entry_bytes:
            checks.append(_BrokenIndex(path, f"{len(data)} bytes are no whole number of entries"))
        else:
            checks.append(check(path, list(iter_unpack(layout, data)), base_offset))
    return checks


def _dump_aborted(files: Files, path: str) -> Iterator[Row]:
    """Without a look at the segment beside it."""
    data = files.read(path)
    if len(data) % ENTRY_BYTES:
        yield ProblemRow(path, 0, f"{len(data)} bytes are no whole number of entries")
    else:
        yield from _AbortedCheck(path, list(iter_unpack(ABORTED_LAYOUT, data))).rows()


def _dump_snapshot(files: Files, path: str) -> Iterator[Row]:
    try:
        producers = decode_producers(files.read(path))
    except DamagedSnapshot as error:
        yield ProblemRow(path, 0, f"the snapshot is damaged: {error}")
        return
    for producer in producers:
        yield ProducerRow(path, producer)
