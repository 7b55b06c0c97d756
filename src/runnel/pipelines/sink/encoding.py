"""Vectorized encoding of records: columns to the body of record batches, without a loop over rows.

A record is `length · 0 · timestamp delta · offset delta · key length · key · value length · value · headers`,
each number a zigzag varint. The varints of all rows are written into a table of bytes, of which a mask
selects the bytes in use; Arrow then concatenates varints, keys, values and headers row by row.
"""

import numpy as np
import pyarrow as pa

from runnel.pipelines.sink.binary import (
    NULL_LENGTH,
    Numbers,
    constants,
    content,
    join,
    lengths_of,
    packed,
    varints,
)
from runnel.pipelines.sink.rows import Rows

_NO_HEADERS = b"\x00"


def encode_records(
    rows: Rows, timestamp_deltas: Numbers, offset_deltas: Numbers
) -> tuple[memoryview, Numbers]:
    """The encoded records, and the start of each record plus the end of the last."""
    key_lengths = lengths_of(rows.key) if rows.key is not None else np.full(len(rows), NULL_LENGTH, np.int64)
    value_lengths = lengths_of(rows.value)
    value_head = varints(value_lengths)
    headers = pa.scalar(_NO_HEADERS, pa.binary()) if rows.headers is None else rows.headers
    header_lengths = np.int64(1) if rows.headers is None else lengths_of(rows.headers)
    between = [varints(timestamp_deltas), varints(offset_deltas), varints(key_lengths)]
    sizes: Numbers = 1 + np.maximum(key_lengths, 0) + np.maximum(value_lengths, 0) + header_lengths
    for numbers in (*between, value_head):
        sizes += numbers.widths
    head = packed([varints(sizes), constants(0, len(rows)), *between])
    parts = [head] if rows.key is None else [head, rows.key]
    joined = join([*parts, packed([value_head]), rows.value, headers])
    return content(joined)
