"""The columns of a DataFrame that are written as a record, and their types."""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from runnel.pipelines.errors import BadOption

_NUMBERS = (ByteType, ShortType, IntegerType, LongType)


@dataclass(frozen=True, slots=True)
class Columns:
    """Index of the column for each field of a record; None if there is no such column."""

    value: int
    key: int | None
    topic: int | None
    partition: int | None
    headers: int | None
    timestamp: int | None


def record_columns(schema: StructType, topic: str | None, *, encodes_values: bool = False) -> Columns:
    """The columns of a record; BadOption if they cannot be written. Other columns are ignored.

    Values that are encoded with a schema may be of any type but binary; text is JSON.
    """
    indexes = {field.name.lower(): index for index, field in enumerate(schema.fields)}
    if "value" not in indexes:
        found = ", ".join(schema.fieldNames()) or "no columns"
        wanted = "" if encodes_values else " of type string or binary"
        raise BadOption(f"a column `value`{wanted} is required; found: {found}")
    if topic is None and "topic" not in indexes:
        raise BadOption("no topic is set: set the option topic, or add a column `topic`")
    types = {name: schema.fields[index].dataType for name, index in indexes.items()}
    if not encodes_values:
        _check(types, "value", "string or binary", StringType, BinaryType)
    elif isinstance(types["value"], BinaryType):
        raise BadOption("column `value` must be a struct or JSON text to be encoded, not binary")
    _check(types, "key", "string or binary", StringType, BinaryType)
    _check(types, "topic", "string", StringType)
    _check(types, "partition", "int", *_NUMBERS)
    _check(types, "timestamp", "timestamp", TimestampType)
    if "headers" in types and not _is_headers(types["headers"]):
        shown = types["headers"].simpleString()
        raise BadOption(f"column `headers` must be array<struct<key:string,value:binary>>, not {shown}")
    return Columns(
        indexes["value"],
        *(indexes.get(name) for name in ("key", "topic", "partition", "headers", "timestamp")),
    )


def _check(types: Mapping[str, DataType], name: str, shown: str, *right: type[DataType]) -> None:
    found = types.get(name)
    if found is not None and not isinstance(found, right):
        hint = "cast it, or convert it with to_json"
        raise BadOption(f"column `{name}` must be {shown}, not {found.simpleString()}: {hint}")


def _is_headers(found: DataType) -> bool:
    if not isinstance(found, ArrayType) or not isinstance(found.elementType, StructType):
        return False
    fields = found.elementType.fields
    return (
        [field.name.lower() for field in fields] == ["key", "value"]
        and isinstance(fields[0].dataType, StringType)
        and isinstance(fields[1].dataType, (BinaryType, StringType))
    )
