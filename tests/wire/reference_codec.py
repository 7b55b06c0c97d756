"""A reference codec that interprets the declarations field by field; independent of the compiled codecs."""

import struct
from typing import Any

from runnel.wire import Message, fields_of
from runnel.wire.primitives import ArrayOf, Blob, Fixed, StructOf, Text, WireType
from runnel.wire.struct import UNSET, Field, Struct


class Malformed(Exception):
    """The input is malformed."""


def is_flexible(message: type[Message], version: int) -> bool:
    return message.flexible_from is not None and version >= message.flexible_from


def default_of(field: Field) -> Any:
    if field.default is not UNSET:
        return field.default
    return field.type.struct() if isinstance(field.type, StructOf) else []


def is_default(field: Field, value: Any) -> bool:
    """True if a tagged field is omitted."""
    if isinstance(field.type, StructOf) and value is not None:
        return (field.default is not None and value == default_of(field)) or (
            field.default is None
            and field.nullable.first > field.nullable.last
            and value == field.type.struct()
        )
    return bool(value == default_of(field))


class Writer:
    """Encodes values."""

    def __init__(self, version: int, flexible: bool) -> None:
        self.version, self.flexible, self.data = version, flexible, b""

    def pack(self, code: str, value: Any) -> None:
        self.data += struct.pack(">" + code, value)

    def unsigned_varint(self, value: int) -> None:
        while value >= 0x80:
            self.pack("B", value % 0x80 + 0x80)
            value //= 0x80
        self.pack("B", value)

    def length(self, value: int | None, code: str) -> None:
        if self.flexible:
            self.unsigned_varint(0 if value is None else value + 1)
        else:
            self.pack(code, -1 if value is None else value)

    def value(self, kind: WireType, value: Any, nullable: bool) -> None:
        if value is None and not nullable:
            raise TypeError("null where it is not allowed")
        match kind:
            case Fixed():
                self.pack(kind.code, value)
            case Text():
                data = None if value is None else value.encode()
                self.length(None if data is None else len(data), "h")
                self.data += data or b""
            case Blob():
                self.length(None if value is None else len(value), "i")
                self.data += bytes(value or b"")
            case ArrayOf():
                self.length(None if value is None else len(value), "i")
                for element in value or []:
                    self.value(kind.element, element, False)
            case StructOf():
                if nullable:
                    self.pack("b", -1 if value is None else 1)
                if value is not None:
                    self.struct(value)

    def struct(self, value: Struct) -> None:
        fields = [field for field in fields_of(type(value)) if field.versions.covers(self.version)]
        for field in fields:
            if field.tag is None:
                self.value(field.type, getattr(value, field.name), field.nullable.covers(self.version))
        if self.flexible:
            tagged = [field for field in fields if field.tag is not None]
            self.tags([(field, getattr(value, field.name)) for field in tagged])

    def tags(self, tagged: list[tuple[Field, Any]]) -> None:
        present = [(field, value) for field, value in tagged if not is_default(field, value)]
        self.unsigned_varint(len(present))
        for field, value in sorted(present, key=lambda pair: pair[0].tag or 0):
            body = Writer(self.version, self.flexible)
            nullable = field.nullable.covers(self.version)
            if nullable and isinstance(field.type, StructOf):
                body.unsigned_varint(0 if value is None else 1)
                if value is not None:
                    body.struct(value)
            else:
                body.value(field.type, value, nullable)
            self.unsigned_varint(field.tag or 0)
            self.unsigned_varint(len(body.data))
            self.data += body.data


class Reader:
    """Decodes values."""

    def __init__(self, version: int, flexible: bool, data: bytes) -> None:
        self.version, self.flexible, self.data = version, flexible, data

    def take(self, count: int) -> bytes:
        if not 0 <= count <= len(self.data):
            raise Malformed(f"{count} bytes wanted, {len(self.data)} left")
        taken, self.data = self.data[:count], self.data[count:]
        return taken

    def unpack(self, code: str) -> Any:
        return struct.unpack(">" + code, self.take(struct.calcsize(">" + code)))[0]

    def unsigned_varint(self) -> int:
        value = 0
        for index in range(5):
            byte: int = self.unpack("B")
            value += byte % 0x80 << 7 * index
            if byte < 0x80:
                if value >= 2**32:
                    break
                return value
        raise Malformed("varint too long")

    def length(self, code: str) -> int | None:
        length: int = self.unsigned_varint() - 1 if self.flexible else self.unpack(code)
        if length < -1:
            raise Malformed("negative length")
        return None if length == -1 else length

    def value(self, kind: WireType, nullable: bool) -> Any:
        if isinstance(kind, Fixed):
            return self.unpack(kind.code)
        if isinstance(kind, StructOf):
            present = self.unpack("b") >= 0 if nullable else True
            return self.struct(kind.struct) if present else None
        length = self.length("h" if isinstance(kind, Text) else "i")
        if length is None:
            if not nullable:
                raise Malformed("null where it is not allowed")
            return None
        if isinstance(kind, ArrayOf):
            if length > len(self.data):
                raise Malformed("more elements than bytes")
            return [self.value(kind.element, False) for _ in range(length)]
        data = self.take(length)
        if isinstance(kind, Blob):
            return data
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise Malformed(str(error)) from error

    def struct(self, kind: type[Struct]) -> Any:
        result = kind()
        fields = [field for field in fields_of(kind) if field.versions.covers(self.version)]
        for field in fields:
            if field.tag is None:
                setattr(result, field.name, self.value(field.type, field.nullable.covers(self.version)))
        if self.flexible:
            self.tags(result, {field.tag: field for field in fields if field.tag is not None})
        return result

    def tags(self, result: Any, known: dict[int, Field]) -> None:
        last = -1
        for _ in range(self.unsigned_varint()):
            tag, size = self.unsigned_varint(), self.unsigned_varint()
            if tag <= last:
                raise Malformed("tags must be increasing")
            last = tag
            body = Reader(self.version, self.flexible, self.take(size))
            if field := known.get(tag):
                nullable = field.nullable.covers(self.version)
                if nullable and isinstance(field.type, StructOf):
                    value = body.struct(field.type.struct) if body.take(1) != b"\x00" else None
                else:
                    value = body.value(field.type, nullable)
                if body.data:
                    raise Malformed("tagged field is longer than its value")
                setattr(result, field.name, value)


def reference_encode(message: Message, version: int) -> bytes:
    writer = Writer(version, is_flexible(type(message), version))
    writer.struct(message)
    return writer.data


def reference_decode(message: type[Message], version: int, data: bytes) -> Any:
    reader = Reader(version, is_flexible(message, version), data)
    result = reader.struct(message)
    if reader.data:
        raise Malformed("bytes left over")
    return result
