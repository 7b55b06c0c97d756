"""Synthetic logs, and their audit without Spark."""

import os
from pathlib import Path

from runnel.batch.build import build_batch
from runnel.batch.header import HEADER_BYTES, patch_offset_and_epoch, walk_headers
from runnel.batch.records import Record
from runnel.pipelines.audit.batch_summary import BatchSummary, LogChunk, Tail, summarize
from runnel.pipelines.audit.checker import PartitionChecker, PartitionInfo, PartitionResult
from runnel.pipelines.audit.findings import Level
from runnel.pipelines.audit.folder import partitions_of, read_file_split


def batch(base_offset, count=10, **options) -> bytes:
    """A batch of a few records."""
    timestamp = options.pop("timestamp", 1_000_000)
    records = [Record(0, timestamp, b"key", b"value %d" % (base_offset + number)) for number in range(count)]
    return bytes(build_batch(records, base_offset=base_offset, **options))


def summaries(data: bytes, tail=Tail.ENDS, expected_offset=0) -> list[BatchSummary]:
    return list(summarize(LogChunk("orders", 0, 0, 0, memoryview(data), tail), expected_offset))


def check(data: bytes, start=0, end=-1, **info) -> PartitionResult:
    checker = PartitionChecker(PartitionInfo("orders", 0, start, end, **info))
    for summary in summaries(data, expected_offset=start):
        checker.add(summary)
    return checker.finish()


def reported(result: PartitionResult, level=Level.FAULT) -> list[tuple[str, int, int]]:
    return [
        (str(finding.kind), finding.first_offset, finding.last_offset)
        for finding in result.findings
        if finding.level is level
    ]


def audit_folder(folder, topic) -> PartitionResult:
    """The result for the only partition of a topic in a data folder."""
    (found,) = [entry for entry in partitions_of(Path(folder)) if entry.info.topic == topic]
    checker = PartitionChecker(found.info)
    for segment in found.segments:
        for summary in read_file_split(segment, found.info.start_offset):
            checker.add(summary)
    return checker.finish()


def segment_of(folder, topic) -> Path:
    (path,) = (Path(folder) / f"{topic}-0").glob("*.log")
    return path


def remove_range(path: Path, first_offset: int) -> tuple[int, int]:
    """Remove the batch with this offset from a segment; returns the removed offsets."""
    data = path.read_bytes()
    for position, header in walk_headers(data):
        if header.base_offset <= first_offset <= header.last_offset:
            path.write_bytes(data[:position] + data[position + header.size_bytes :])
            _forget_indexes(path)
            return header.base_offset, header.last_offset
    raise AssertionError(f"no batch has offset {first_offset}")


def flip_byte(path: Path, offset: int, byte: int = HEADER_BYTES + 3) -> tuple[int, int]:
    """Flip a byte of the batch with this offset; returns the offsets of that batch."""
    data = bytearray(path.read_bytes())
    for position, header in walk_headers(bytes(data)):
        if header.base_offset <= offset <= header.last_offset:
            data[position + byte] ^= 0x40
            path.write_bytes(data)
            return header.base_offset, header.last_offset
    raise AssertionError(f"no batch has offset {offset}")


def write_again(path: Path, offset: int) -> tuple[int, int, int]:
    """Append a copy of the batch with this offset; returns its original offset and its new offsets."""
    data = path.read_bytes()
    batches = list(walk_headers(data))
    end = batches[-1][1].next_offset
    for position, header in batches:
        if header.base_offset <= offset <= header.last_offset:
            copy = bytearray(data[position : position + header.size_bytes])
            patch_offset_and_epoch(copy, 0, end, header.leader_epoch)
            path.write_bytes(data + copy)
            return header.base_offset, end, end + header.last_offset_delta
    raise AssertionError(f"no batch has offset {offset}")


def forget_shutdown(folder) -> None:
    """Remove the manifest, so that the broker recovers its changed files on start."""
    Path(folder, "clean-shutdown-manifest").unlink()


def _forget_indexes(path: Path) -> None:
    for suffix in (".index", ".timeindex"):
        index = path.with_suffix(suffix)
        if index.exists():
            os.unlink(index)
