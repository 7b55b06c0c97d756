"""The types that a field can have on the wire, and the few bytes-level tools that compiled codecs call.

Annotations such as `int32` are plain `int` for a type checker; the wire type rides along in `Annotated`.
"""

from dataclasses import dataclass
from struct import Struct as Layout
from typing import Annotated, Any, Protocol

ZERO_UUID = bytes(16)


class MalformedMessage(ValueError):
    """The bytes are not a message of the kind and version they were taken for."""


class UnknownVersion(MalformedMessage):
    """The message exists, but not in this version."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """A value of always the same size, read and written by one `struct` code."""

    name: str
    code: str
    size_bytes: int
    zero: object = 0


@dataclass(frozen=True, slots=True)
class Text:
    """A UTF-8 string after its length."""

    name: str = "string"
    zero: object = ""


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes after their length; decoded as a view of the input, never copied."""

    name: str
    zero: object = b""


@dataclass(frozen=True, slots=True)
class ArrayOf:
    """Elements of one type after their count."""

    element: "WireType"


@dataclass(frozen=True, slots=True)
class StructOf:
    """The fields of another struct, in place."""

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
    """Record bytes that lie in several places, some perhaps still in a file."""

    @property
    def parts(self) -> list[Any]: ...

    @property
    def size_bytes(self) -> int: ...


# Record data up to this size is cheaper to copy into the bytes around it than to send as a buffer of its own.
COPIED_RECORDS_BYTES = 2048


def long_unsigned_varint(view: memoryview, position: int) -> tuple[int, int]:
    """Read a varint of any length; the callers have already dealt with those of one byte."""
    value = 0
    for shift in (0, 7, 14, 21, 28):
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, position
    raise MalformedMessage("a varint does not fit 32 bits")


def unsigned_varint(value: int) -> bytes:
    """Seven bits per byte, lowest first; the top bit says that more follow."""
    if not 0 <= value <= 0xFFFFFFFF:
        raise ValueError(f"{value} does not fit an unsigned varint")
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


VARINTS = tuple(unsigned_varint(value) for value in range(4096))


def varint(value: int) -> bytes:
    """`unsigned_varint`, from the table where it reaches."""
    return VARINTS[value] if 0 <= value < 4096 else unsigned_varint(value)


def skip_tags(view: memoryview, position: int, count: int) -> int:
    """Step over tagged fields that this version does not know (KIP-482); returns where they end."""
    if count > 127:
        count, position = long_unsigned_varint(view, position - 1)
    limit = len(view)
    last = -1
    for _ in range(count):
        tag, size, position = tag_and_size(view, position)
        position += size
        if tag <= last or position > limit:
            raise MalformedMessage(f"tagged field {tag} is repeated, out of order or too long")
        last = tag
    return position


def tag_and_size(view: memoryview, position: int) -> tuple[int, int, int]:
    """The head of one tagged field: (tag, size in bytes, where its data begins)."""
    tag = view[position]
    position += 1
    if tag > 127:
        tag, position = long_unsigned_varint(view, position - 1)
    size = view[position]
    position += 1
    if size > 127:
        size, position = long_unsigned_varint(view, position - 1)
    return tag, size, position


def records_size(records: Any) -> int:
    """How many bytes of records will follow."""
    return len(records) if isinstance(records, (bytes, memoryview, bytearray)) else records.size_bytes


def place_records(records: Any, small: list[Any], buffers: list[Any]) -> None:
    """Put record data behind what was written so far, without copying what is not small."""
    if isinstance(records, (bytes, memoryview, bytearray)):
        if len(records) <= COPIED_RECORDS_BYTES:
            small.append(records)
            return
        pieces = [records]
    else:
        pieces = records.parts
    buffers.append(b"".join(small))
    small.clear()
    buffers.extend(pieces)


def array_layout(code: str, count: int, layouts: dict[tuple[str, int], Layout] = {}) -> Layout:  # noqa: B006
    """The layout of `count` equal fixed-size values; short arrays, which are nearly all, share theirs."""
    layout = layouts.get((code, count))
    if layout is None:
        layout = Layout(f">{count}{code}" if code != "16s" else ">" + code * count)
        if count <= 64:
            layouts[code, count] = layout
    return layout
