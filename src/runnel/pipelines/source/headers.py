"""Decodes the headers of many records into an Arrow column of lists."""

import numpy as np
import pyarrow as pa

from runnel.batch.errors import CorruptBatch
from runnel.pipelines.source.decode import Spans, binary_column
from runnel.pipelines.source.varints import Bytes, Positions, read_varints

HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS = pa.list_(pa.field("element", HEADER))


def header_column(spans: Spans) -> pa.ListArray:
    """The headers of each record; null without headers, as in Spark's Kafka connector."""
    view: Bytes = np.frombuffer(spans.data, dtype=np.uint8)
    counts, positions = read_varints(view, spans.header_starts)
    if ((counts < 0) | (counts * 2 > spans.ends - positions)).any():
        raise CorruptBatch("the header count exceeds the size of the record")
    if not counts.any():
        _check_end(positions, spans.ends)
        return pa.nulls(len(spans), HEADERS)
    names, values = _fields(view, counts, positions, spans.ends)
    structs = pa.StructArray.from_arrays(
        [_text_column(spans.data, *names), binary_column(spans.data, *values)], fields=list(HEADER)
    )
    bounds = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(bounds), structs, type=HEADERS, mask=pa.array(counts == 0))


def _fields(
    view: Bytes, counts: Positions, positions: Positions, ends: Positions
) -> tuple[tuple[Positions, Positions], tuple[Positions, Positions]]:
    """(starts, lengths) of all names and of all values, in order."""
    first = np.cumsum(counts) - counts
    total = int(counts.sum())
    name_starts, name_lengths, value_starts, value_lengths = (
        np.empty(total, dtype=np.int64) for _ in range(4)
    )
    positions = positions.copy()
    # The first header of every record, then the second of those that have one, …
    for turn in range(int(counts.max())):
        active = np.flatnonzero(counts > turn)
        slots = first[active] + turn
        limits = ends[active]
        lengths, starts = read_varints(view, positions[active])
        if ((lengths < 0) | (lengths > limits - starts)).any():
            raise CorruptBatch("the name of a header is longer than its record")
        name_starts[slots], name_lengths[slots] = starts, lengths
        lengths, starts = read_varints(view, starts + lengths)
        if ((lengths < -1) | (lengths > limits - starts)).any():
            raise CorruptBatch("the value of a header is longer than its record")
        value_starts[slots], value_lengths[slots] = starts, lengths
        positions[active] = starts + np.maximum(lengths, 0)
    _check_end(positions, ends)
    return (name_starts, name_lengths), (value_starts, value_lengths)


def _check_end(positions: Positions, ends: Positions) -> None:
    if (positions != ends).any():
        raise CorruptBatch("the headers do not end at the end of the record")


def _text_column(data: bytes, starts: Positions, lengths: Positions) -> pa.StringArray:
    column = binary_column(data, starts, lengths)
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        # Not UTF-8, which the protocol requires: replace the invalid bytes rather than fail.
        return pa.array([name.decode("utf-8", "replace") for name in column.to_pylist()], pa.string())
