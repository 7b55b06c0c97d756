"""Decodes Avro values by their writer's schema, without a file header."""

import io
import json
from collections.abc import Mapping
from typing import Any

import fastavro
import pyarrow as pa
from fastavro.schema import SchemaParseException
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from runnel.pipelines.errors import BadOption
from runnel.pipelines.source.values import Decoded, Malformed, decode_each

Schema = dict[str, Any] | list[Any] | str

_PRIMITIVES: Mapping[str, DataType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "string": StringType(),
    "fixed": BinaryType(),
    "enum": StringType(),
}
_LOGICAL: Mapping[str, DataType] = {
    "timestamp-millis": TimestampType(),
    "timestamp-micros": TimestampType(),
    "local-timestamp-millis": TimestampNTZType(),
    "local-timestamp-micros": TimestampNTZType(),
    "date": DateType(),
}


class AvroDecoder:
    """Decodes Avro values into columns of one type."""

    def __init__(self, schema_text: str, kind: pa.DataType) -> None:
        self._schema = parsed_schema(schema_text)
        self._kind = kind

    def decode(self, column: pa.BinaryArray) -> Decoded:
        """Decode a column of values."""
        return decode_each(column, self._kind, self._decode_one)

    def _decode_one(self, text: bytes) -> Any:
        return decoded(text, self._schema, None)


def decoded(text: bytes, writer: Schema, reader: Schema | None) -> Any:
    """The value of bytes, as the reader's schema has it; Malformed if they do not match."""
    stream = io.BytesIO(text)
    try:
        value = fastavro.schemaless_reader(stream, writer, reader)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - any error of the reader means malformed bytes
        raise Malformed(f"does not match the Avro schema: {error or type(error).__name__}") from None
    rest = len(text) - stream.tell()
    if rest:
        raise Malformed(f"does not match the Avro schema: {rest} trailing bytes")
    return value


def parsed_schema(text: str) -> Schema:
    """Parse an Avro schema; BadOption if it is invalid."""
    try:
        parsed: Schema = fastavro.parse_schema(_plain(json.loads(text)))
    except (ValueError, SchemaParseException) as error:
        raise BadOption(f"valueSchema is not an Avro schema: {error}") from None
    return parsed


def spark_type(schema_text: str) -> DataType:
    """The column type of a schema."""
    return _type_of(parsed_schema(schema_text), {})


def _plain(schema: Any) -> Any:
    """The schema without unsupported logical types, which are read as their underlying types."""
    if isinstance(schema, list):
        return [_plain(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: _plain(part)
        for name, part in schema.items()
        if name != "logicalType" or part in _LOGICAL or part == "decimal"
    }


def _type_of(schema: Any, named: dict[str, Any]) -> DataType:
    if isinstance(schema, list):
        return _union(schema, named)
    if isinstance(schema, str):
        return _PRIMITIVES[schema] if schema in _PRIMITIVES else _named(schema, named)
    logical = schema.get("logicalType")
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if logical == "decimal":
        return DecimalType(schema["precision"], schema.get("scale", 0))
    return _complex(schema, named)


def _named(name: str, named: dict[str, Any]) -> DataType:
    if name == "null":
        raise BadOption("valueSchema: the type null is not supported as a column")
    known: DataType | None = named[name]
    if known is None:
        raise BadOption(f"valueSchema: the recursive type {name} is not supported")
    return known


def _complex(schema: dict[str, Any], named: dict[str, Any]) -> DataType:
    match schema["type"]:
        case "record":
            # None while its fields are resolved.
            named[schema["name"]] = None
            kind: DataType = StructType(
                [StructField(field["name"], _type_of(field["type"], named)) for field in schema["fields"]]
            )
        case "array":
            items = _type_of(schema["items"], named)
            if _is_empty(items):
                raise BadOption(
                    "valueSchema has an array of items without any bytes, which a few bytes could "
                    "expand to any number of"
                )
            return ArrayType(items)
        case "map":
            return MapType(StringType(), _type_of(schema["values"], named))
        case inner:
            kind = _type_of(inner, named)
    if "name" in schema:
        named[schema["name"]] = kind
    return kind


def _is_empty(kind: DataType) -> bool:
    return isinstance(kind, StructType) and all(_is_empty(column.dataType) for column in kind)


def _union(branches: list[Any], named: dict[str, Any]) -> DataType:
    others = [branch for branch in branches if branch != "null"]
    if len(others) != 1:
        raise BadOption(
            f"valueSchema has a union of {len(others)} types; only unions of one type and null are supported"
        )
    return _type_of(others[0], named)
