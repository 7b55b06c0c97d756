"""Reads the data folder of a stopped broker: its partitions, segments and checkpoints."""

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from runnel.batch.header import HEADER_BYTES
from runnel.log.manifest import LogEntry
from runnel.log.names import CLEANER_CHECKPOINT, LOG_STARTS, MANIFEST, partition_of
from runnel.model.ids import TopicPartition
from runnel.pipelines.audit.batch_summary import CHECKSUM, BatchSummary, LogChunk, Tail, summarize
from runnel.pipelines.audit.checker import UNKNOWN, PartitionInfo
from runnel.pipelines.audit.splits import FileSplit
from runnel.pipelines.errors import PipelineError
from runnel.pipelines.restore.checkpoint_files import KAFKA_CLEANED, read_manifest, read_offsets
from runnel.pipelines.restore.segments import segment_files

CHUNK_BYTES = 8 * 1024 * 1024
_PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class FolderPartition:
    """One partition of a data folder: its expected state, and its segments in order."""

    info: PartitionInfo
    segments: tuple[FileSplit, ...]


def partitions_of(
    folder: Path, *, compacted: Collection[str] = (), time_is_strict: bool = False
) -> list[FolderPartition]:
    """All partitions of a broker's data folder, by name; `compacted` names compacted topics."""
    if not folder.is_dir():
        raise PipelineError(f"there is no folder {folder}")
    starts, cleaned = read_offsets(folder / LOG_STARTS), read_offsets(folder / KAFKA_CLEANED)
    manifest = read_manifest(folder / MANIFEST)
    found = []
    for path in sorted(folder.iterdir()):
        name = partition_of(path.name)
        if name is None or not path.is_dir():
            continue
        files = segment_files(path)
        bases = [int(file.name.partition(".")[0]) for file in files]
        is_compacted = name.topic in compacted or name in cleaned or (path / CLEANER_CHECKPOINT).exists()
        info = _info(name, starts.get(name), manifest.get(name), bases, is_compacted, time_is_strict)
        segments = tuple(
            FileSplit(name.topic, name.partition, str(file), base, file is files[-1])
            for file, base in zip(files, bases, strict=True)
        )
        found.append(FolderPartition(info, segments))
    # Partitions that existed at shutdown and have no folder are lost.
    missing = manifest.keys() - {TopicPartition(one.info.topic, one.info.partition) for one in found}
    found.extend(
        FolderPartition(_info(name, None, manifest[name], [], False, time_is_strict), ())
        for name in sorted(missing)
    )
    if not found:
        raise PipelineError(f"{folder} is not a broker's data folder: it has no partitions")
    return found


def _info(
    name: TopicPartition,
    start: int | None,
    manifest: LogEntry | None,
    bases: Sequence[int],
    is_compacted: bool,
    time_is_strict: bool,
) -> PartitionInfo:
    first = bases[0] if bases else 0
    if manifest is not None:
        start_offset = manifest.log_start_offset
        end_offset = manifest.segments[-1].next_offset if manifest.segments else start_offset
    else:
        start_offset, end_offset = first if start is None else start, UNKNOWN
    return PartitionInfo(
        name.topic,
        name.partition,
        start_offset,
        end_offset,
        is_compacted=is_compacted,
        # After a crash in the first compaction of a log, its checkpoint does not exist yet.
        may_be_compacted=True,
        # The active segment is never compacted.
        cleaned_to=bases[-1] if bases else 0,
        time_is_strict=time_is_strict,
    )


def read_file_split(split: FileSplit, start_offset: int) -> Iterator[BatchSummary]:
    """The summaries of the batches of a segment from the log start offset on."""
    with open(split.path, "rb", buffering=0) as file:
        for summary in _summarize_file(split, file.fileno()):
            if summary.last_offset >= start_offset or summary.problem is not None:
                yield summary


def _summarize_file(split: FileSplit, descriptor: int) -> Iterator[BatchSummary]:
    """Summarize a file chunk by chunk."""
    size_bytes = os.fstat(descriptor).st_size
    position, expected, chunk_bytes = 0, split.base_offset, CHUNK_BYTES
    while position < size_bytes:
        chunk = _chunk(descriptor, position, min(chunk_bytes, size_bytes - position))
        end = position + len(chunk)
        is_last = end >= size_bytes
        tail = (Tail.ENDS if split.is_last else Tail.CLOSED) if is_last else Tail.CONTINUES
        log_chunk = LogChunk(
            split.topic, split.partition, split.base_offset, position, memoryview(chunk), tail
        )
        before = position
        for summary in summarize(log_chunk, expected):
            if not is_last and not _is_final(summary, end):
                break
            yield summary
            position, expected = summary.position + summary.size_bytes, summary.last_offset + 1
        if is_last:
            return
        # Read more only for a batch larger than a chunk, or damage that extends past the chunk.
        chunk_bytes = CHUNK_BYTES if position > before else 4 * chunk_bytes


def _is_final(summary: BatchSummary, end: int) -> bool:
    """Is the summary independent of the bytes after `end`?"""
    if summary.problem is None:
        return True
    behind = end - summary.position - summary.size_bytes
    return behind >= HEADER_BYTES if summary.problem == CHECKSUM else behind > 0


def _chunk(descriptor: int, position: int, size_bytes: int) -> bytes:
    """Bytes of a file; unreadable pages are returned as zeros and reported as damage."""
    try:
        return os.pread(descriptor, size_bytes, position).ljust(size_bytes, b"\0")
    except OSError:
        if size_bytes <= _PAGE_BYTES:
            return bytes(size_bytes)
    pages = range(position, position + size_bytes, _PAGE_BYTES)
    return b"".join(
        _chunk(descriptor, page, min(_PAGE_BYTES, position + size_bytes - page)) for page in pages
    )
