"""Arrow columns of bytes, split into numeric arrays and assembled from them."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

NULL_LENGTH = -1


class Varints(NamedTuple):
    """Variable-length integers: one row of bytes each, the mask of bytes in use, and the width of each."""

    table: Bytes
    mask: Mask
    widths: Numbers


def spans(column: Any) -> tuple[Bytes, Numbers, Numbers]:
    """The bytes of a binary column, and the start and length of each value; the length of a null is 0."""
    _, offsets_buffer, data_buffer = column.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[column.offset : column.offset + len(column) + 1]
    # A slice shares the buffer of its parent array: skip the bytes outside the slice.
    starts = (offsets[:-1] - offsets[0]).astype(np.int64)
    lengths = np.diff(offsets).astype(np.int64)
    data = np.zeros(0, np.uint8)
    if data_buffer is not None:
        data = np.frombuffer(data_buffer, np.uint8)[offsets[0] : offsets[-1]]
    if column.null_count:
        lengths[nulls(column)] = 0
    return data, starts, lengths


def nulls(column: Any) -> Mask:
    """Which values of a column are null."""
    found: Mask = column.is_null().to_numpy(zero_copy_only=False)
    return found


def lengths_of(column: Any) -> Numbers:
    """How long each value is; NULL_LENGTH for null."""
    _, _, lengths = spans(column)
    if column.null_count:
        lengths[nulls(column)] = NULL_LENGTH
    return lengths


def varints(values: Numbers) -> Varints:
    """Each number as a zigzag varint."""
    zigzag = (values << 1 ^ values >> 63).view(np.uint64)
    largest = int(zigzag.max()) if len(zigzag) else 0
    width = max(1, -(-largest.bit_length() // 7))
    table = np.empty((len(values), width), np.uint8)
    mask = np.ones((len(values), width), np.bool_)
    widths = np.ones(len(values), np.int64)
    for column in range(width - 1):
        rest = zigzag >> np.uint64(7)
        has_next = rest != 0
        table[:, column] = (zigzag & np.uint64(0x7F)) | (has_next * np.uint64(0x80))
        mask[:, column + 1] = has_next
        widths += has_next
        zigzag = rest
    table[:, width - 1] = zigzag
    return Varints(table, mask, widths)


def constants(value: int, length: int) -> Varints:
    """One small number, many times."""
    table = np.full((length, 1), value, np.uint8)
    return Varints(table, np.ones((length, 1), np.bool_), np.ones(length, np.int64))


def packed(numbers: list[Varints]) -> Any:
    """The varints of each row, concatenated, as one Arrow binary column."""
    table = np.concatenate([one.table for one in numbers], axis=1)
    mask = np.concatenate([one.mask for one in numbers], axis=1)
    offsets = np.zeros(len(table) + 1, np.int32)
    np.cumsum(sum(one.widths for one in numbers), out=offsets[1:])
    data = table[mask]
    return pa.Array.from_buffers(pa.binary(), len(table), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def join(columns: list[Any]) -> Any:
    """Concatenate the columns row by row; a null adds nothing."""
    # Not a module constant: creating a scalar makes Arrow import pandas, the slowest import of all.
    empty = pa.scalar(b"", pa.binary())
    return pc.binary_join_element_wise(*columns, empty, null_handling="replace", null_replacement=b"")


def content(column: Any) -> tuple[memoryview, Numbers]:
    """All bytes of a column that is not a slice, and the start of each value plus the end of the last."""
    _, offsets_buffer, data_buffer = column.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[: len(column) + 1].astype(np.int64)
    return memoryview(data_buffer) if data_buffer is not None else memoryview(b""), offsets
