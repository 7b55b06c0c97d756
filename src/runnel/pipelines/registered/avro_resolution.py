"""Differences of Avro schemas that fastavro resolves to other values than Avro's rules do, without an error.

It reads logical types by the writer's schema alone, and takes the defaults of fields as they are in JSON.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from runnel.registry.avro.model import BYTES, NULL, Array, Enum, Fixed, Map, Primitive, Record, Schema, Union

_LOGICAL = {
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "local-timestamp-millis": "local timestamp",
    "local-timestamp-micros": "local timestamp",
    "date": "date",
    "decimal": "decimal",
}
"""Logical types that are columns of their own → what fastavro makes of them."""


def difference(reader: Schema, writer: Schema) -> str | None:
    """Why data of the writer's schema cannot be read by the reader's; None if it can be."""
    return next(_differences(reader, writer, "", set()), None)


def _differences(reader: Schema, writer: Schema, path: str, entered: set[tuple[int, int]]) -> Iterator[str]:
    for one, other in product(_branches(reader), _branches(writer)):
        if (id(one), id(other)) not in entered:
            entered.add((id(one), id(other)))
            yield from _differences_of_types(one, other, path, entered)


def _differences_of_types(
    reader: Schema, writer: Schema, path: str, entered: set[tuple[int, int]]
) -> Iterator[str]:
    match reader, writer:
        case Array(), Array():
            yield from _differences(reader.items, writer.items, f"{path}[]", entered)
        case Map(), Map():
            yield from _differences(reader.values, writer.values, f"{path}{{}}", entered)
        case Record(), Record():
            yield from _differences_of_fields(reader, writer, path, entered)
        case ((Primitive() | Fixed()), (Primitive() | Fixed())) if NULL not in (reader.type, writer.type):
            read, written = _logical(reader), _logical(writer)
            if read != written:
                as_written = f"{path or 'the value'} was written as {written or 'no logical type'}"
                yield f"{as_written}, and is read as {read or 'none'}"


def _differences_of_fields(
    reader: Record, writer: Record, path: str, entered: set[tuple[int, int]]
) -> Iterator[str]:
    written = {field.name: field for field in writer.fields}
    for field in reader.fields:
        place = f"{path}.{field.name}" if path else field.name
        found = next((written[name] for name in (field.name, *field.aliases) if name in written), None)
        if found is not None:
            yield from _differences(field.schema, found.schema, place, entered)
        elif field.has_default and not _is_plain(field.schema, field.default):
            yield f"{place} was not written, and its default is of a type whose JSON is another value"


def _is_plain(schema: Schema, default: Any) -> bool:
    """Is a default the value that its JSON is?"""
    if default is None:
        return True
    match schema:
        case Primitive():
            return schema.type != BYTES and _logical(schema) is None
        case Enum():
            return True
        case Union():
            return all(_is_plain(one, default) for one in schema.branches if one.type != NULL)
        case Array() if isinstance(default, list):
            return all(_is_plain(schema.items, one) for one in default)
        case Map() if isinstance(default, dict):
            return all(_is_plain(schema.values, one) for one in default.values())
        case Record() if isinstance(default, dict):
            return all(
                field.name in default and _is_plain(field.schema, default[field.name])
                for field in schema.fields
            )
    return False


def _branches(schema: Schema) -> Sequence[Schema]:
    return schema.branches if isinstance(schema, Union) else (schema,)


def _logical(schema: Primitive | Fixed) -> str | None:
    name = schema.properties.get("logicalType")
    return _LOGICAL.get(name) if isinstance(name, str) else None
