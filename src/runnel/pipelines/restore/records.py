"""Converts archived rows to records."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from runnel.batch.varint import encode_varint
from runnel.pipelines.restore.restore_state import OFFSET, PARTITION, TIMESTAMP, TOPIC, UNTIL
from runnel.pipelines.sink.binary import Numbers, join, lengths_of, packed, varints
from runnel.pipelines.sink.rows import Rows, binary, header_runs

RESTORE_HEADERS = 4
"""One more if the restore has a limit."""


def restored_rows(rows: pa.RecordBatch, topic: str, partition: int, until: str | None = None) -> Rows:
    """The original records, each with additional headers for its original position."""
    offsets, timestamps_ms = (rows.column(name) for name in ("offset", "timestamp_ms"))
    counts, own = header_runs(rows.column("headers"))
    common = _header(TOPIC, topic.encode()) + _header(PARTITION, b"%d" % partition)
    if until is not None:
        common += _header(UNTIL, until.encode())
    headers = join(
        [
            packed([varints(counts + (RESTORE_HEADERS if until is None else RESTORE_HEADERS + 1))]),
            own,
            pa.scalar(common, pa.binary()),
            *_numbers_header(OFFSET, offsets),
            *_numbers_header(TIMESTAMP, timestamps_ms),
        ]
    )
    stamps: Numbers = timestamps_ms.to_numpy().astype(np.int64)
    return Rows(binary(rows.column("key")), binary(rows.column("value")), headers, stamps, None, None)


def _name(name: str) -> bytes:
    return encode_varint(len(name)) + name.encode()


def _header(name: str, value: bytes) -> bytes:
    return _name(name) + encode_varint(len(value)) + value


def _numbers_header(name: str, numbers: Any) -> list[Any]:
    """The encoded parts of a header with a decimal value."""
    digits = pc.cast(pc.cast(numbers, pa.string()), pa.binary())
    return [pa.scalar(_name(name), pa.binary()), packed([varints(lengths_of(digits))]), digits]
