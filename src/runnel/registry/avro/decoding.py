"""Avro data as JSON values; with limits, because the data may be any bytes."""

import struct
from typing import Any

from runnel.registry.avro.limits import DATA_DEPTH_MAX, DATA_VALUES_MAX, SHOWN_VALUES_MAX
from runnel.registry.avro.model import (
    NULL,
    Array,
    Enum,
    Fixed,
    Map,
    Primitive,
    Record,
    Schema,
    Union,
    branch_name,
)
from runnel.registry.format import InvalidData


def decode(schema: Schema, data: bytes) -> Any:
    """The value that bytes contain in Avro's JSON encoding, from which they can be encoded again.

    A value of a union is `{"branch": value}`, bytes are text of the characters up to U+00FF, and numbers that
    JSON does not have are text, as Java writes them. Raises InvalidData.
    """
    return _decoded(schema, _Decoder(data, DATA_VALUES_MAX, names_branches=True), data)


def shown(schema: Schema, data: bytes) -> Any:
    """The value in a readable form, without the names of union branches. Raises InvalidData."""
    return _decoded(schema, _Decoder(data, SHOWN_VALUES_MAX, names_branches=False), data)


def _decoded(schema: Schema, decoder: "_Decoder", data: bytes) -> Any:
    try:
        value = decoder.value(schema, 0)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise InvalidData(f"not data of the schema: {error}") from None
    if decoder.position != len(data):
        raise InvalidData(f"{len(data) - decoder.position} bytes are left over")
    return value


class _Decoder:
    def __init__(self, data: bytes, values_max: int, *, names_branches: bool) -> None:
        self._data = data
        self._values_left = values_max
        self._names_branches = names_branches
        self.position = 0

    def value(self, schema: Schema, depth: int) -> Any:
        self._values_left -= 1
        if self._values_left < 0 or depth > DATA_DEPTH_MAX:
            raise InvalidData("it has too many values or levels")
        match schema:
            case Primitive():
                return self._primitive(schema.type)
            case Record():
                return {field.name: self.value(field.schema, depth + 1) for field in schema.fields}
            case Enum():
                return schema.symbols[self._index(len(schema.symbols))]
            case Union():
                return self._branch(schema.branches[self._index(len(schema.branches))], depth + 1)
            case Fixed():
                return self._take(schema.size).decode("latin-1")
            case Array():
                return [self.value(schema.items, depth + 1) for _ in self._blocks()]
            case Map():
                return {self._text(): self.value(schema.values, depth + 1) for _ in self._blocks()}

    def _branch(self, branch: Schema, depth: int) -> Any:
        value = self.value(branch, depth)
        return {branch_name(branch): value} if self._names_branches and branch.type != NULL else value

    def _primitive(self, kind: str) -> Any:
        match kind:
            case "null":
                return None
            case "boolean":
                return self._take(1) != b"\x00"
            case "int" | "long":
                return self._long()
            case "float":
                return _number(struct.unpack("<f", self._take(4))[0])
            case "double":
                return _number(struct.unpack("<d", self._take(8))[0])
            case "bytes":
                return self._take(self._long()).decode("latin-1")
        return self._text()

    def _text(self) -> str:
        return self._take(self._long()).decode()

    def _blocks(self) -> Any:
        """Once per item of an array or map."""
        while count := self._long():
            if count < 0:
                # The size of the block in bytes, for readers that skip it.
                self._long()
                count = -count
            for _ in range(count):
                yield

    def _index(self, count: int) -> int:
        index = self._long()
        if not 0 <= index < count:
            raise InvalidData(f"there is no symbol or branch {index}")
        return index

    def _take(self, size: int) -> bytes:
        if not 0 <= size <= len(self._data) - self.position:
            raise InvalidData("it ends too early")
        self.position += size
        return self._data[self.position - size : self.position]

    def _long(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            if shift > 63:
                raise InvalidData("a number has too many bytes")


def _number(number: float) -> float | str:
    """JSON has no infinities."""
    if number - number == 0:
        return number
    return "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"
