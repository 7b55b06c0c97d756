"""Protobuf messages as column types. Fields are matched by their numbers, as Protobuf does it.

Data is parsed with the reader's message: fields that only the writer's schema has are ignored, and fields
that the writer did not have are absent.
"""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from runnel.pipelines.errors import BadOption
from runnel.pipelines.registered.json_form import any_json, key_text, named_number, scalar_json
from runnel.pipelines.registered.shapes import Decode
from runnel.registry.format import InvalidData
from runnel.registry.protobuf.encoding import Encoder
from runnel.registry.protobuf.records import Messages, read_message_indexes
from runnel.registry.protobuf.schema import ProtobufSchema

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WELL_KNOWN = "google.protobuf."
_WRAPPED = frozenset(
    f"{_WELL_KNOWN}{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_TEXTS = frozenset((f"{_WELL_KNOWN}Duration", f"{_WELL_KNOWN}FieldMask"))
"""Messages whose JSON is text."""
_ANY_JSON = frozenset(f"{_WELL_KNOWN}{name}" for name in ("Struct", "Value", "ListValue", "Any"))
"""Messages whose JSON is of no certain type."""

_SCALARS: Mapping[int, DataType] = {
    FieldDescriptor.CPPTYPE_INT32: IntegerType(),
    FieldDescriptor.CPPTYPE_INT64: LongType(),
    FieldDescriptor.CPPTYPE_UINT32: LongType(),
    FieldDescriptor.CPPTYPE_UINT64: DecimalType(20, 0),
    FieldDescriptor.CPPTYPE_DOUBLE: DoubleType(),
    FieldDescriptor.CPPTYPE_FLOAT: FloatType(),
    FieldDescriptor.CPPTYPE_BOOL: BooleanType(),
    FieldDescriptor.CPPTYPE_ENUM: StringType(),
    FieldDescriptor.CPPTYPE_STRING: StringType(),
}


class _Node(NamedTuple):
    """A part of a message: its type, and conversions to and from a value of it."""

    type: DataType
    read: Callable[[Any], Any]
    write: Callable[[Any], Any]
    """To Protobuf's JSON mapping."""


class ProtobufShape:
    """A message as a struct: enums are their names, what has no type of its own in Spark is JSON text."""

    def __init__(self, schema: ProtobufSchema, message: str | None) -> None:
        self._encoder = Encoder(schema)
        self._name = message
        try:
            indexes = (0,) if message is None else self._encoder.indexes_of(message)
            descriptor = self._encoder.message(indexes)
        except InvalidData as error:
            raise BadOption(f"valueMessage: {error}") from None
        self._full_name: str = descriptor.full_name
        self._class = message_factory.GetMessageClass(descriptor)
        self._node = _message(descriptor, (), self._encoder.pool)
        self.type = self._node.type

    def decoder(self, writer: ProtobufSchema, kind: pa.DataType) -> Decode:
        names: dict[tuple[int, ...], str] = {}
        messages = Messages(writer)

        def decode(data: bytes) -> Any:
            indexes, position = read_message_indexes(data)
            if indexes not in names:
                names[indexes] = messages.message(indexes).full_name
            if names[indexes] != self._full_name:
                raise InvalidData(f"it is a message {names[indexes]}, not {self._full_name}")
            try:
                return self._node.read(self._class.FromString(data[position:]))
            except DecodeError as error:
                raise InvalidData(f"it cannot be decoded as {self._full_name}: {error}") from None

        return decode

    def columns(self, kind: pa.DataType) -> None:
        return None

    def encode(self, value: Any) -> bytes:
        try:
            text = json.dumps(self._node.write(value))
        except (ValueError, TypeError, AttributeError) as error:
            raise InvalidData(str(error)) from None
        return self._encoder.encode(text, self._name)


def _message(descriptor: Any, entered: tuple[str, ...], pool: Any) -> _Node:
    name = descriptor.full_name
    if name == f"{_WELL_KNOWN}Timestamp":
        return _Node(TimestampType(), _moment, scalar_json)
    if name in _WRAPPED:
        inner = _scalar(descriptor.fields_by_name["value"])
        return _Node(inner.type, lambda message: inner.read(message.value), inner.write)
    if name in _TEXTS:
        return _Node(StringType(), partial(_mapped, pool), any_json)
    if name in _ANY_JSON or name in entered:
        return _Node(StringType(), lambda message: json.dumps(_mapped(pool, message)), json.loads)
    return _struct(descriptor, (*entered, name), pool)


def _struct(descriptor: Any, entered: tuple[str, ...], pool: Any) -> _Node:
    nodes = {field.name: (field, _field(field, entered, pool)) for field in descriptor.fields}

    def read(message: Any) -> dict[str, Any]:
        return {
            name: None
            if field.has_presence and not message.HasField(name)
            else node.read(getattr(message, name))
            for name, (field, node) in nodes.items()
        }

    def write(value: Any) -> dict[str, Any]:
        # The encoder reports fields that the message does not have.
        return {
            name: nodes[name][1].write(one) if name in nodes else any_json(one)
            for name, one in value.items()
            if one is not None
        }

    fields = [StructField(name, node.type) for name, (_, node) in nodes.items()]
    return _Node(StructType(fields), read, write)


def _field(field: Any, entered: tuple[str, ...], pool: Any) -> _Node:
    if not field.is_repeated:
        return _single(field, entered, pool)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        entry = field.message_type.fields_by_name
        key, item = _scalar(entry["key"]), _single(entry["value"], entered, pool)
        return _Node(
            MapType(key.type, item.type),
            lambda table: [(key.read(name), item.read(table[name])) for name in table],
            lambda value: {key_text(name): item.write(one) for name, one in value.items()},
        )
    one = _single(field, entered, pool)
    return _Node(
        ArrayType(one.type),
        lambda items: [one.read(item) for item in items],
        lambda value: [one.write(item) for item in value],
    )


def _single(field: Any, entered: tuple[str, ...], pool: Any) -> _Node:
    return _scalar(field) if field.message_type is None else _message(field.message_type, entered, pool)


def _scalar(field: Any) -> _Node:
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _Node(BinaryType(), bytes, scalar_json)
    kind = _SCALARS[field.cpp_type]
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_ENUM:
            names = field.enum_type.values_by_number
            return _Node(
                kind, lambda number: names[number].name if number in names else str(number), scalar_json
            )
        case FieldDescriptor.CPPTYPE_UINT64:
            return _Node(kind, Decimal, scalar_json)
        case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
            return _Node(kind, float, lambda value: named_number(scalar_json(value)))
    return _Node(kind, lambda value: value, scalar_json)


def _moment(message: Any) -> datetime:
    return _EPOCH + timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)


def _mapped(pool: Any, message: Any) -> Any:
    return json_format.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=pool)


shape = ProtobufShape
