"""The data folder of a broker that is not running: partitions, segments, and what they should hold."""

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from runnel.batch.header import HEADER_BYTES
from runnel.log.manifest import LogEntry
from runnel.log.names import CLEANER_CHECKPOINT, LOG_STARTS, MANIFEST, partition_of
from runnel.model.ids import TopicPartition
from runnel.pipelines.audit.facts import CHECKSUM, BatchFact, Stretch, Tail, facts_of
from runnel.pipelines.audit.judge import UNKNOWN, Terms
from runnel.pipelines.audit.pieces import FilePiece
from runnel.pipelines.errors import PipelineError
from runnel.pipelines.restore.checkpoint_files import KAFKA_CLEANED, read_manifest, read_offsets
from runnel.pipelines.restore.segments import segment_files

CHUNK_BYTES = 8 * 1024 * 1024
_PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class FolderPartition:
    """One partition of a data folder: what to expect, and its segments in order."""

    terms: Terms
    segments: tuple[FilePiece, ...]


def partitions_of(
    folder: Path, *, compacted: Collection[str] = (), time_is_strict: bool = False
) -> list[FolderPartition]:
    """All partitions of a broker's data folder, by name; `compacted` are topics known to be so."""
    if not folder.is_dir():
        raise PipelineError(f"there is no folder {folder}")
    starts, cleaned = read_offsets(folder / LOG_STARTS), read_offsets(folder / KAFKA_CLEANED)
    closed = read_manifest(folder / MANIFEST)
    found = []
    for path in sorted(folder.iterdir()):
        name = partition_of(path.name)
        if name is None or not path.is_dir():
            continue
        files = segment_files(path)
        bases = [int(file.name.partition(".")[0]) for file in files]
        is_compacted = name.topic in compacted or name in cleaned or (path / CLEANER_CHECKPOINT).exists()
        terms = _terms(name, starts.get(name), closed.get(name), bases, is_compacted, time_is_strict)
        segments = tuple(
            FilePiece(name.topic, name.partition, str(file), base, file is files[-1])
            for file, base in zip(files, bases, strict=True)
        )
        found.append(FolderPartition(terms, segments))
    # What was there when the broker stopped and is not any more is gone as a whole.
    missing = closed.keys() - {TopicPartition(one.terms.topic, one.terms.partition) for one in found}
    found.extend(
        FolderPartition(_terms(name, None, closed[name], [], False, time_is_strict), ())
        for name in sorted(missing)
    )
    if not found:
        raise PipelineError(f"{folder} is not a broker's data folder: it has no partitions")
    return found


def _terms(
    name: TopicPartition,
    start: int | None,
    closed: LogEntry | None,
    bases: Sequence[int],
    is_compacted: bool,
    time_is_strict: bool,
) -> Terms:
    first = bases[0] if bases else 0
    if closed is not None:
        start_offset = closed.log_start_offset
        end_offset = closed.segments[-1].next_offset if closed.segments else start_offset
    else:
        start_offset, end_offset = first if start is None else start, UNKNOWN
    return Terms(
        name.topic,
        name.partition,
        start_offset,
        end_offset,
        is_compacted=is_compacted,
        # A broker that stopped in the middle of its first compaction has not noted it yet.
        may_be_compacted=True,
        # Nobody compacts the segment that is written to.
        cleaned_to=bases[-1] if bases else 0,
        time_is_strict=time_is_strict,
    )


def read_file_piece(piece: FilePiece, start_offset: int) -> Iterator[BatchFact]:
    """The facts of all batches of a segment that reach the start of the log."""
    with open(piece.path, "rb", buffering=0) as file:
        for fact in _file_facts(piece, file.fileno()):
            if fact.last_offset >= start_offset or fact.problem is not None:
                yield fact


def _file_facts(piece: FilePiece, descriptor: int) -> Iterator[BatchFact]:
    """What `facts_of` says of the whole file, of which only a part is in memory at a time."""
    size_bytes = os.fstat(descriptor).st_size
    position, expected, chunk_bytes = 0, piece.base_offset, CHUNK_BYTES
    while position < size_bytes:
        chunk = _chunk(descriptor, position, min(chunk_bytes, size_bytes - position))
        end = position + len(chunk)
        is_last = end >= size_bytes
        tail = (Tail.ENDS if piece.is_last else Tail.CLOSED) if is_last else Tail.GOES_ON
        stretch = Stretch(piece.topic, piece.partition, piece.base_offset, position, memoryview(chunk), tail)
        before = position
        for fact in facts_of(stretch, expected):
            if not is_last and not _is_settled(fact, end):
                break
            yield fact
            position, expected = fact.position + fact.size_bytes, fact.last_offset + 1
        if is_last:
            return
        # A batch that is larger than a chunk, or damage of which the end is not in sight: only then more.
        chunk_bytes = CHUNK_BYTES if position > before else 4 * chunk_bytes


def _is_settled(fact: BatchFact, end: int) -> bool:
    """Would it be the same fact if the bytes behind `end` were known?"""
    if fact.problem is None:
        return True
    behind = end - fact.position - fact.size_bytes
    return behind >= HEADER_BYTES if fact.problem == CHECKSUM else behind > 0


def _chunk(descriptor: int, position: int, size_bytes: int) -> bytes:
    """Bytes of a file; where the disk cannot read it there are zeros, as damaged as a wrong checksum."""
    try:
        return os.pread(descriptor, size_bytes, position).ljust(size_bytes, b"\0")
    except OSError:
        if size_bytes <= _PAGE_BYTES:
            return bytes(size_bytes)
    pages = range(position, position + size_bytes, _PAGE_BYTES)
    return b"".join(
        _chunk(descriptor, page, min(_PAGE_BYTES, position + size_bytes - page)) for page in pages
    )
