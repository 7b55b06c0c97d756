"""Wire types of fields, and the functions that compiled codecs call.

Annotations such as `int32` are plain `int` for a type checker; the wire type rides along in `Annotated`.
"""

from dataclasses import dataclass
from functools import cache
from struct import Struct as Layout
from typing import Annotated, Any, Protocol

ZERO_UUID = bytes(16)


class MalformedMessage(ValueError):
    """The bytes are not a valid message of the expected type and version."""


class TooManyElements(MalformedMessage):
    """The arrays of a request have more elements than it may have; names the array that exceeded it."""


class UnknownVersion(MalformedMessage):
    """The message exists, but not in this version."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """A fixed-size value with a `struct` format code."""

    name: str
    code: str
    size_bytes: int
    zero: object = 0


@dataclass(frozen=True, slots=True)
class Text:
    """A length-prefixed UTF-8 string."""

    name: str = "string"
    zero: object = ""


@dataclass(frozen=True, slots=True)
class Blob:
    """Length-prefixed bytes; decoded as a view of the input, never copied."""

    name: str
    zero: object = b""


@dataclass(frozen=True, slots=True)
class ArrayOf:
    """A count followed by elements of one type."""

    element: "WireType"


@dataclass(frozen=True, slots=True)
class StructOf:
    """The fields of another struct, inline."""

    struct: Any


WireType = Fixed | Text | Blob | ArrayOf | StructOf

RECORDS = Blob("records", None)

int8 = Annotated[int, Fixed("int8", "b", 1)]
int16 = Annotated[int, Fixed("int16", "h", 2)]
uint16 = Annotated[int, Fixed("uint16", "H", 2)]
int32 = Annotated[int, Fixed("int32", "i", 4)]
uint32 = Annotated[int, Fixed("uint32", "I", 4)]
int64 = Annotated[int, Fixed("int64", "q", 8)]
float64 = Annotated[float, Fixed("float64", "d", 8, 0.0)]
boolean = Annotated[bool, Fixed("bool", "?", 1, False)]
uuid = Annotated[bytes, Fixed("uuid", "16s", 16, ZERO_UUID)]
string = Annotated[str, Text()]
bytes_ = Annotated[bytes | memoryview, Blob("bytes")]
records_ = Annotated[Any, RECORDS]
"""Record batches: decoding gives a memoryview, encoding takes bytes, a memoryview or `Pieces`."""


class Pieces(Protocol):
    """Record bytes in several parts, some of which may be file slices."""

    @property
    def parts(self) -> list[Any]: ...

    @property
    def size_bytes(self) -> int: ...


# Record data up to this size is cheaper to copy than to send as a separate buffer.
COPIED_RECORDS_BYTES = 2048
# Shorter arrays of numbers, the common case, use precompiled layouts.
SHORT_ARRAY = 32

_INT32 = Layout(">i")


def long_unsigned_varint(view: memoryview, position: int) -> tuple[int, int]:
    """Read a varint of any length; one-byte varints are handled inline by compiled code."""
    byte = view[position]
    value = byte & 0x7F
    if byte < 0x80:
        return value, position + 1
    byte = view[position + 1]
    value |= (byte & 0x7F) << 7
    if byte < 0x80:
        return value, position + 2
    byte = view[position + 2]
    value |= (byte & 0x7F) << 14
    if byte < 0x80:
        return value, position + 3
    byte = view[position + 3]
    value |= (byte & 0x7F) << 21
    if byte < 0x80:
        return value, position + 4
    byte = view[position + 4]
    if byte > 0x0F:
        raise MalformedMessage("a varint exceeds 32 bits")
    return value | byte << 28, position + 5


def unsigned_varint(value: int) -> bytes:
    """Seven bits per byte, least significant first; the top bit is set if more follow."""
    if not 0 <= value <= 0xFFFFFFFF:
        raise ValueError(f"{value} does not fit in an unsigned varint")
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


VARINTS = tuple(
    bytes((value,)) if value < 128 else bytes((value & 0x7F | 0x80, value >> 7)) for value in range(4096)
)


def varint(value: int) -> bytes:
    """`unsigned_varint`, without a loop for the sizes of record data."""
    if 0 <= value < 4096:
        return VARINTS[value]
    if 16384 <= value < 2097152:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    return unsigned_varint(value)


def skip_tags(view: memoryview, position: int, count: int, tags_left: int) -> tuple[int, int]:
    """Skip unknown tagged fields (KIP-482); returns their end and the remaining limit."""
    if count > 127:
        count, position = long_unsigned_varint(view, position - 1)
    tags_left -= count
    if tags_left < 0:
        raise MalformedMessage(f"{count} tagged fields are more than the limit allows")
    limit = len(view)
    last = -1
    for _ in range(count):
        tag, size, position = tag_and_size(view, position)
        position += size
        if tag <= last or position > limit:
            raise MalformedMessage(f"tagged field {tag} is repeated, out of order or too long")
        last = tag
    return position, tags_left


def tag_and_size(view: memoryview, position: int) -> tuple[int, int, int]:
    """The head of a tagged field: (tag, size in bytes, position of its data)."""
    tag = view[position]
    position += 1
    if tag > 127:
        tag, position = long_unsigned_varint(view, position - 1)
    size = view[position]
    position += 1
    if size > 127:
        size, position = long_unsigned_varint(view, position - 1)
    return tag, size, position


def append_records(records: Any, flexible: bool, small: list[Any], buffers: list[Any]) -> None:
    """Append record data to the buffers; only small data is copied."""
    in_memory = isinstance(records, (memoryview, bytes, bytearray))
    size_bytes = len(records) if in_memory else records.size_bytes
    small.append(varint(size_bytes + 1) if flexible else _INT32.pack(size_bytes))
    if in_memory and size_bytes <= COPIED_RECORDS_BYTES:
        small.append(records)
        return
    buffers.append(b"".join(small))
    small.clear()
    if in_memory:
        buffers.append(records)
    else:
        buffers.extend(records.parts)


def pack_array(length_code: str, code: str, values: list[Any]) -> bytes:
    """A compact or fixed count followed by fixed-size values."""
    count = len(values)
    length = varint(count + 1) if length_code == "B" else _INT32.pack(count)
    return length + Layout(">" + code * count).pack(*values)


def unpack_array(code: str, count: int, view: memoryview, position: int) -> tuple[Any, ...]:
    """Fixed-size values; the caller has checked the size of the input."""
    return Layout(">" + code * count).unpack_from(view, position)


@cache
def short_array_packers(length_code: str, code: str) -> tuple[Any, ...]:
    """Packers of count (compact or fixed) and values, by number of values."""
    return tuple(Layout(">" + length_code + code * count).pack for count in range(SHORT_ARRAY))


@cache
def short_array_unpackers(code: str) -> tuple[Any, ...]:
    """Unpackers of values, by number of values."""
    return tuple(Layout(">" + code * count).unpack_from for count in range(SHORT_ARRAY))
