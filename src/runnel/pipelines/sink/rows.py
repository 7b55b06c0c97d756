"""The rows of an Arrow batch as columns of bytes and numbers: what a record is made of."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from runnel.pipelines.errors import PipelineError
from runnel.pipelines.sink.binary import Numbers, content, join, lengths_of, packed, spans, varints
from runnel.pipelines.sink.columns import Columns

PIECE_BYTES = 64 * 1024 * 1024
"""Rows beyond this are taken in several steps: offsets in Arrow's columns count to 2 GiB only."""


OVERHEAD_BYTES = 16
"""Lengths and deltas: what a record takes beside key, value and headers, roughly."""


@dataclass(slots=True)
class Rows:
    """Records to be, column by column; an absent column is None."""

    key: Any
    """Arrow binary, as `value`."""
    value: Any
    headers: Any
    """The headers of each row as a record has them, their count first; Arrow binary, too."""
    timestamps_ms: Numbers
    topic: Any
    partition: Any

    def __len__(self) -> int:
        return len(self.value)

    @property
    def sizes(self) -> Numbers:
        """About what each record takes before compression."""
        sizes = np.full(len(self), OVERHEAD_BYTES, np.int64)
        for column in (self.key, self.value, self.headers):
            if column is not None:
                sizes += spans(column)[2]
        return sizes

    def in_order(self, order: Numbers) -> "Rows":
        """The same rows in another order; topic and partition have served their purpose by then."""
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
    """An Arrow batch in slices that are not too large to be worked on at once."""
    count = max(1, -(-batch.nbytes // PIECE_BYTES))
    length = max(1, -(-batch.num_rows // count))
    for start in range(0, batch.num_rows, length):
        yield batch.slice(start, length)


def rows_of(batch: Any, columns: Columns, now_ms: int) -> Rows:
    """The columns of a record; rows without a timestamp are of now."""

    def column(index: int | None) -> Any:
        return None if index is None else batch.column(index)

    return Rows(
        binary(column(columns.key)),
        binary(column(columns.value)),
        None if columns.headers is None else encode_headers(column(columns.headers)),
        _milliseconds(column(columns.timestamp), batch.num_rows, now_ms),
        column(columns.topic),
        column(columns.partition),
    )


def binary(column: Any) -> Any:
    """The column as bytes; None stays None."""
    return None if column is None else column.cast(pa.binary())


def _milliseconds(column: Any, length: int, now_ms: int) -> Numbers:
    if column is None:
        return np.full(length, now_ms, np.int64)
    stamps = pc.fill_null(column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()), now_ms * 1000)
    milliseconds: Numbers = np.floor_divide(stamps.to_numpy(zero_copy_only=False), 1000)
    if len(milliseconds) and int(milliseconds.min()) < 0:
        raise PipelineError("column `timestamp` has a moment before 1970, which a record cannot have")
    return milliseconds


def encode_headers(column: Any) -> Any:
    """From lists of structs of key and value to the headers of each row as a record has them."""
    counts, runs = header_runs(column)
    return join([packed([varints(counts)]), runs])


def header_runs(column: Any) -> tuple[Numbers, Any]:
    """How many headers each row has, and their bytes, one header after the other."""
    counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    flat = column.flatten()
    names, values = (flat.field(index).cast(pa.binary()) for index in (0, 1))
    if names.null_count or flat.null_count:
        raise PipelineError("column `headers` has a header without a key, which a record cannot have")
    if len(names) == 0:
        return counts, pa.scalar(b"", pa.binary())
    heads = [packed([varints(lengths_of(part))]) for part in (names, values)]
    data, starts = content(join([heads[0], names, heads[1], values]))
    # The headers of a row stand side by side: its run of them is one value.
    offsets = starts[np.concatenate(([0], np.cumsum(counts)))].astype(np.int32)
    runs = pa.Array.from_buffers(pa.binary(), len(counts), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return counts, runs
