"""Sparse indexes of a segment: from offset to file position, and from time to offset.

On disk they are Kafka's: 8-byte entries (offset relative to the segment's base, position) and 12-byte entries
(largest timestamp so far, relative offset of its batch). In memory each column is an array to bisect.
"""

from array import array
from bisect import bisect_right
from itertools import islice
from operator import lt
from struct import Struct, unpack

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12

_TIME_ENTRY = Struct(">qi")


class DamagedIndex(Exception):
    """The index is damaged; it is rebuilt from the segment."""


class OffsetIndex:
    """The offset index: (last offset of a batch, its position), ascending."""

    __slots__ = ("_offsets", "_positions", "base_offset")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self._offsets = array("I")
        self._positions = array("I")

    def __len__(self) -> int:
        return len(self._offsets)

    def __copy__(self) -> "OffsetIndex":
        copy = OffsetIndex(self.base_offset)
        copy._offsets, copy._positions = self._offsets[:], self._positions[:]
        return copy

    def append(self, last_offset: int, position: int) -> None:
        """Add a batch after all indexed ones."""
        self._offsets.append(last_offset - self.base_offset)
        self._positions.append(position)

    def position_before(self, offset: int) -> int:
        """The position of an indexed batch at or before the batch with `offset`."""
        return self.entry_before(offset)[1]

    def entry_before(self, offset: int) -> tuple[int, int]:
        """(last offset, position) of the last indexed batch not behind that with `offset`, or (-1, 0)."""
        return self._entry(bisect_right(self._offsets, max(offset - self.base_offset, 0)) - 1)

    def position_at_most(self, position: int) -> int:
        """The position of the last indexed batch at or before `position`."""
        return self.entry_at_most(position)[1]

    def entry_at_most(self, position: int) -> tuple[int, int]:
        """(last offset, position) of the last indexed batch at or before `position`, or (-1, 0)."""
        return self._entry(bisect_right(self._positions, position) - 1)

    def _entry(self, number: int) -> tuple[int, int]:
        if number < 0:
            return -1, 0
        return self._offsets[number] + self.base_offset, self._positions[number]

    @property
    def last(self) -> tuple[int, int] | None:
        """The newest entry: (last offset of the batch, position)."""
        if not self._offsets:
            return None
        return self._offsets[-1] + self.base_offset, self._positions[-1]

    def truncate(self, end_offset: int) -> None:
        """Forget batches that do not end below `end_offset`."""
        count = bisect_right(self._offsets, end_offset - 1 - self.base_offset)
        del self._offsets[count:]
        del self._positions[count:]

    def encode(self) -> bytes:
        entries = array("I", bytes(OFFSET_ENTRY_BYTES * len(self._offsets)))
        entries[0::2] = self._offsets
        entries[1::2] = self._positions
        return _big_endian(entries)

    @classmethod
    def decode(cls, data: bytes, base_offset: int, segment_bytes: int) -> "OffsetIndex":
        """Decode an index; DamagedIndex unless its entries ascend and are within the segment."""
        if len(data) % OFFSET_ENTRY_BYTES:
            raise DamagedIndex(f"{len(data)} bytes are no whole number of entries")
        entries = array("I", data)
        if not _NATIVE_IS_BIG_ENDIAN:
            entries.byteswap()
        index = cls(base_offset)
        index._offsets = entries[0::2]
        index._positions = entries[1::2]
        if not (_ascends(index._offsets) and _ascends(index._positions)):
            raise DamagedIndex("the entries do not ascend")
        if index._positions and index._positions[-1] >= segment_bytes:
            raise DamagedIndex(f"an entry points at {index._positions[-1]} of {segment_bytes} bytes")
        return index


class TimeIndex:
    """The time index: (largest timestamp so far, last offset of its batch), ascending."""

    __slots__ = ("_offsets", "_timestamps", "base_offset")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self._timestamps = array("q")
        self._offsets = array("I")

    def __len__(self) -> int:
        return len(self._offsets)

    def __copy__(self) -> "TimeIndex":
        copy = TimeIndex(self.base_offset)
        copy._timestamps, copy._offsets = self._timestamps[:], self._offsets[:]
        return copy

    @property
    def last(self) -> tuple[int, int] | None:
        """The newest entry: (timestamp, offset)."""
        if not self._offsets:
            return None
        return self._timestamps[-1], self._offsets[-1] + self.base_offset

    def append(self, timestamp_ms: int, offset: int) -> None:
        """Add the largest timestamp so far, unless it equals the last entry."""
        if not self._timestamps or timestamp_ms > self._timestamps[-1]:
            self._timestamps.append(timestamp_ms)
            self._offsets.append(offset - self.base_offset)

    def offset_before(self, timestamp_ms: int) -> int:
        """An offset before which no record is as late as `timestamp_ms`."""
        found = bisect_right(self._timestamps, timestamp_ms)
        return self.base_offset + (self._offsets[found - 1] if found else 0)

    def truncate(self, end_offset: int) -> None:
        """Forget batches that do not end below `end_offset`."""
        count = bisect_right(self._offsets, end_offset - 1 - self.base_offset)
        del self._offsets[count:]
        del self._timestamps[count:]

    def encode(self) -> bytes:
        return b"".join(map(_TIME_ENTRY.pack, self._timestamps, self._offsets))

    @classmethod
    def decode(cls, data: bytes, base_offset: int) -> "TimeIndex":
        """Decode an index; DamagedIndex unless its entries ascend."""
        if len(data) % TIME_ENTRY_BYTES:
            raise DamagedIndex(f"{len(data)} bytes are no whole number of entries")
        index = cls(base_offset)
        columns = unpack(f">{'qi' * (len(data) // TIME_ENTRY_BYTES)}", data)
        index._timestamps = array("q", columns[0::2])
        try:
            index._offsets = array("I", columns[1::2])
        except OverflowError:
            raise DamagedIndex("an offset is negative") from None
        if not (_ascends(index._timestamps) and _ascends(index._offsets)):
            raise DamagedIndex("the entries do not ascend")
        return index


_NATIVE_IS_BIG_ENDIAN = array("H", b"\x00\x01")[0] == 1


def _big_endian(entries: "array[int]") -> bytes:
    if not _NATIVE_IS_BIG_ENDIAN:
        entries.byteswap()
    return entries.tobytes()


def _ascends(column: "array[int]") -> bool:
    return all(map(lt, column, islice(column, 1, None)))
