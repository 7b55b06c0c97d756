"""The rows of an Arrow batch as the columns of records."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from runnel.pipelines.errors import PipelineError
from runnel.pipelines.sink.binary import Numbers, content, join, lengths_of, packed, spans, varints
from runnel.pipelines.sink.columns import Columns

PIECE_BYTES = 64 * 1024 * 1024
"""Larger batches are processed in slices: offsets of Arrow's binary columns are limited to 2 GiB."""


OVERHEAD_BYTES = 16
"""Approximate size of a record's lengths and deltas."""


@dataclass(slots=True)
class Rows:
    """Records in columns; an absent column is None."""

    key: Any
    """Arrow binary, like `value`."""
    value: Any
    headers: Any
    """The encoded headers of each row, preceded by their count; Arrow binary."""
    timestamps_ms: Numbers
    topic: Any
    partition: Any

    def __len__(self) -> int:
        return len(self.value)

    @property
    def sizes(self) -> Numbers:
        """Approximate size of each record before compression."""
        sizes = np.full(len(self), OVERHEAD_BYTES, np.int64)
        for column in (self.key, self.value, self.headers):
            if column is not None:
                sizes += spans(column)[2]
        return sizes

    def in_order(self, order: Numbers) -> "Rows":
        """The rows in the given order, without topic and partition."""
        picks = pa.array(order)
        return Rows(
            None if self.key is None else self.key.take(picks),
            self.value.take(picks),
            None if self.headers is None else self.headers.take(picks),
            self.timestamps_ms[order],
            None,
            None,
        )


def pieces(batch: Any) -> Iterator[Any]:
    """Slices of an Arrow batch of bounded size."""
    count = max(1, -(-batch.nbytes // PIECE_BYTES))
    length = max(1, -(-batch.num_rows // count))
    for start in range(0, batch.num_rows, length):
        yield batch.slice(start, length)


def rows_of(batch: Any, columns: Columns, now_ms: int, encode: Callable[[Any], Any] | None = None) -> Rows:
    """The columns of the records; rows without a timestamp get the current time.

    `encode` converts the column of values to binary.
    """

    def column(index: int | None) -> Any:
        return None if index is None else batch.column(index)

    return Rows(
        binary(column(columns.key)),
        (encode or binary)(column(columns.value)),
        None if columns.headers is None else encode_headers(column(columns.headers)),
        _milliseconds(column(columns.timestamp), batch.num_rows, now_ms),
        column(columns.topic),
        column(columns.partition),
    )


def binary(column: Any) -> Any:
    """Cast a column to binary; None stays None."""
    return None if column is None else column.cast(pa.binary())


def _milliseconds(column: Any, length: int, now_ms: int) -> Numbers:
    if column is None:
        return np.full(length, now_ms, np.int64)
    stamps = pc.fill_null(column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()), now_ms * 1000)
    milliseconds: Numbers = np.floor_divide(stamps.to_numpy(zero_copy_only=False), 1000)
    if len(milliseconds) and int(milliseconds.min()) < 0:
        raise PipelineError("column `timestamp` has a value before 1970, which a record cannot store")
    return milliseconds


def encode_headers(column: Any) -> Any:
    """Encode lists of (key, value) structs as the headers of records."""
    counts, runs = header_runs(column)
    return join([packed([varints(counts)]), runs])


def header_runs(column: Any) -> tuple[Numbers, Any]:
    """The number of headers of each row, and their encoded bytes."""
    counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    flat = column.flatten()
    names, values = (flat.field(index).cast(pa.binary()) for index in (0, 1))
    if names.null_count or flat.null_count:
        raise PipelineError("column `headers` has a header without a key, which a record cannot store")
    if len(names) == 0:
        return counts, pa.scalar(b"", pa.binary())
    heads = [packed([varints(lengths_of(part))]) for part in (names, values)]
    data, starts = content(join([heads[0], names, heads[1], values]))
    # The headers of a row are contiguous: together they are one value.
    offsets = starts[np.concatenate(([0], np.cumsum(counts)))].astype(np.int32)
    runs = pa.Array.from_buffers(pa.binary(), len(counts), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return counts, runs
