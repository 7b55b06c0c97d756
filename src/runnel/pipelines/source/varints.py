"""Vectorised decoding of varints: the counterpart of `runnel.batch.varint`."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from runnel.batch.errors import CorruptBatch
from runnel.batch.varint import VARINT_BYTES_MAX

Bytes = NDArray[np.uint8]
Positions = NDArray[np.int64]


def read_varints(data: Bytes, positions: Positions) -> tuple[Positions, Positions]:
    """(values, positions after them) of the varints at these positions; CorruptBatch if invalid."""
    try:
        raw = np.take(data, positions)
    except IndexError:
        raise CorruptBatch("the records end inside a varint") from None
    unread = np.flatnonzero(raw >= 0x80)
    behind = positions + 1
    if not unread.size:
        return _unfold(raw.astype(np.int64)), behind
    zigzag = (raw & 0x7F).astype(np.uint64)
    if unread.size == raw.size:
        _read_second_bytes(data, zigzag, behind)
        unread = np.flatnonzero(np.take(data, behind - 1) >= 0x80)
        shift = 14
    else:
        shift = 7
    while unread.size:
        if shift >= 7 * VARINT_BYTES_MAX:
            raise CorruptBatch("a varint is longer than ten bytes")
        more = _bytes_at(data, behind[unread])
        zigzag[unread] |= (more & 0x7F).astype(np.uint64) << np.uint64(shift)
        behind[unread] += 1
        unread = unread[more >= 0x80]
        shift += 7
    return _unfold(zigzag), behind


def _read_second_bytes(data: Bytes, zigzag: NDArray[np.uint64], behind: Positions) -> None:
    # All varints have a second byte, as is usual for lengths of 64 bytes and more.
    zigzag |= (_bytes_at(data, behind) & 0x7F).astype(np.uint64) << np.uint64(7)
    behind += 1


def _bytes_at(data: Bytes, positions: Positions) -> Bytes:
    try:
        return np.take(data, positions)
    except IndexError:
        raise CorruptBatch("the records end inside a varint") from None


def _unfold(zigzag: NDArray[Any]) -> Positions:
    folded = zigzag.astype(np.uint64, copy=False)
    return (folded >> np.uint64(1)).view(np.int64) ^ -((folded & np.uint64(1)).view(np.int64))
