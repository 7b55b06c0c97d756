"""Decodes fetched batches into Arrow columns.

All records of a fetch are decoded at once: numpy finds their starts and decodes their integers, and Arrow
gathers keys, values and headers from one buffer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from runnel.batch.compression import decompress
from runnel.batch.errors import CorruptBatch
from runnel.batch.header import HEADER_BYTES, BatchHeader, Buffer
from runnel.batch.records import RECORD_BYTES_MIN
from runnel.pipelines.source.record_scan import record_starts
from runnel.pipelines.source.varints import Bytes, Positions, read_varints

MICROSECONDS_MAX = (2**63 - 1) // 1000
"""Timestamps are milliseconds on the wire; beyond this one, they cannot be represented in microseconds."""

SPANS_BYTES = 64 * 1024 * 1024
"""Decompressed bytes that are decoded at once; an Arrow column is limited to 2 GiB."""


@dataclass(slots=True)
class Packed:
    """A batch with visible records, still compressed."""

    header: BatchHeader
    payload: memoryview
    """The records section of the batch."""


@dataclass(slots=True)
class Spans:
    """The positions of the fields of all records in `data`; one entry per record, lengths of -1 are null."""

    data: bytes
    offsets: Positions
    timestamps_ms: Positions
    timestamp_types: NDArray[np.int32]
    key_starts: Positions
    key_lengths: Positions
    value_starts: Positions
    value_lengths: Positions
    header_starts: Positions
    """The position of the header count, after the value."""
    ends: Positions

    def __len__(self) -> int:
        return len(self.offsets)

    def select(self, chosen: NDArray[np.bool_]) -> "Spans":
        """The selected records."""
        return Spans(
            self.data,
            self.offsets[chosen],
            self.timestamps_ms[chosen],
            self.timestamp_types[chosen],
            self.key_starts[chosen],
            self.key_lengths[chosen],
            self.value_starts[chosen],
            self.value_lengths[chosen],
            self.header_starts[chosen],
            self.ends[chosen],
        )


def packed(batch: memoryview, header: BatchHeader) -> Packed:
    """The batch in a buffer."""
    return Packed(header, batch[HEADER_BYTES : header.size_bytes])


def read_spans(batches: Sequence[Packed], from_offset: int, to_offset: int) -> Iterator[Spans]:
    """The records of these batches with offsets in [from, to); CorruptBatch if they are malformed.

    Usually one result; highly compressed batches are split to bound memory.
    """
    payloads: list[Buffer] = []
    headers: list[BatchHeader] = []
    size_bytes = 0
    for batch in batches:
        payload = decompress(batch.payload, batch.header.compression)
        payloads.append(payload)
        headers.append(batch.header)
        size_bytes += len(payload)
        if size_bytes >= SPANS_BYTES:
            yield from _wanted(payloads, headers, from_offset, to_offset)
            payloads, headers, size_bytes = [], [], 0
    if payloads:
        yield from _wanted(payloads, headers, from_offset, to_offset)


def _wanted(
    payloads: Sequence[Buffer], headers: Sequence[BatchHeader], from_offset: int, to_offset: int
) -> Iterator[Spans]:
    data = b"".join(payloads)
    spans = _spans(data, record_starts(data, [len(payload) for payload in payloads], headers), headers)
    wanted = (spans.offsets >= from_offset) & (spans.offsets < to_offset)
    if wanted.all():
        yield spans
    elif wanted.any():
        yield spans.select(wanted)


def _spans(data: bytes, starts: Positions, headers: Sequence[BatchHeader]) -> Spans:
    view: Bytes = np.frombuffer(data, dtype=np.uint8)
    lengths, bodies = read_varints(view, starts)
    ends = bodies + lengths
    if starts.size and lengths.min() < RECORD_BYTES_MIN - 1:
        raise CorruptBatch(f"a record of {lengths.min()} bytes is impossible")
    timestamp_deltas, after = read_varints(view, bodies + 1)
    offset_deltas, after = read_varints(view, after)
    key_lengths, key_starts = read_varints(view, after)
    key_ends = _ends_of_field(key_starts, key_lengths, ends)
    value_lengths, value_starts = read_varints(view, key_ends)
    value_ends = _ends_of_field(value_starts, value_lengths, ends)
    if (value_ends >= ends).any():
        raise CorruptBatch("a record ends before its header count")
    offsets, timestamps_ms, timestamp_types = _absolute(headers, offset_deltas, timestamp_deltas)
    return Spans(
        data,
        offsets,
        timestamps_ms,
        timestamp_types,
        key_starts,
        key_lengths,
        value_starts,
        value_lengths,
        value_ends,
        ends,
    )


def _ends_of_field(starts: Positions, lengths: Positions, ends: Positions) -> Positions:
    """The ends of keys or values, checked because Arrow does not check bounds."""
    if ((lengths < -1) | (lengths > ends - starts)).any():
        raise CorruptBatch("a key or a value is longer than its record")
    return starts + np.maximum(lengths, 0)


def _absolute(
    headers: Sequence[BatchHeader], offset_deltas: Positions, timestamp_deltas: Positions
) -> tuple[Positions, Positions, NDArray[np.int32]]:
    """Offsets, timestamps and timestamp types, from batch headers and deltas."""
    counts = [header.record_count for header in headers]
    table = np.array(
        [
            (
                header.base_offset,
                header.max_timestamp if header.uses_log_append_time else header.base_timestamp,
                header.uses_log_append_time,
            )
            for header in headers
        ],
        dtype=np.int64,
    ).reshape(-1, 3)
    base_offsets, base_timestamps, types = np.repeat(table, counts, axis=0).T
    timestamps_ms = np.where(types == 1, base_timestamps, base_timestamps + timestamp_deltas)
    return base_offsets + offset_deltas, timestamps_ms, types.astype(np.int32)


def binary_column(data: bytes, starts: Positions, lengths: Positions) -> pa.BinaryArray:
    """The fields at these positions as an Arrow column; a length of -1 is null."""
    count = len(starts)
    if not count:
        return pa.array([], pa.binary())
    # A column in which fields and the gaps between them alternate …
    bounds = np.empty((count, 2), dtype=np.int32)
    bounds[:, 0] = starts
    np.add(starts, np.maximum(lengths, 0), out=bounds[:, 1], casting="same_kind")
    everything = pa.Array.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )
    # … of which every other element is selected.
    null = lengths < 0
    indices = pa.array(np.arange(0, 2 * count, 2, dtype=np.int32), mask=null if null.any() else None)
    return everything.take(indices)
