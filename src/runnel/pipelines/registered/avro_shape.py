"""Avro schemas as column types. Data is resolved from the writer's schema to the reader's by fastavro."""

import io
from functools import cached_property
from typing import Any

import fastavro
import pyarrow as pa
from fastavro.validation import ValidationError
from pyspark.sql.types import DataType

from runnel.pipelines.registered.avro_resolution import difference
from runnel.pipelines.registered.shapes import Decode
from runnel.pipelines.source.avro_values import decoded, parsed_schema, spark_type
from runnel.registry.avro import decoding
from runnel.registry.avro.model import NULL, Array, Fixed, Map, Primitive, Record, Schema, Union
from runnel.registry.avro.schema import AvroSchema
from runnel.registry.format import InvalidData

REASON_CHARACTERS_MAX = 300


class AvroShape:
    """A record as a struct, as `valueSchema` has it."""

    def __init__(self, schema: AvroSchema, message: str | None) -> None:
        self._model = schema.schema
        self._text = schema.formatted("resolved")
        self._schema = parsed_schema(self._text)

    @cached_property
    def type(self) -> DataType:
        return spark_type(self._text)

    def decoder(self, writer: AvroSchema, kind: pa.DataType) -> Decode:
        if _has_endless_arrays(writer.schema, set()):
            raise InvalidData(
                "its schema has an array of items without any bytes, which a few bytes could expand to any "
                "number of"
            )
        text = writer.formatted("resolved")
        if text == self._text:
            return lambda data: decoded(data, self._schema, None)
        unresolved = difference(self._model, writer.schema)
        if unresolved is not None:
            raise InvalidData(unresolved)
        written = parsed_schema(text)

        def decode(data: bytes) -> Any:
            # fastavro skips what the reader does not have without looking for the end of the data, or for how
            # deep it is.
            try:
                decoding.decode(writer.schema, data)
            except InvalidData as error:
                raise InvalidData(f"does not match the Avro schema: {error}") from None
            return decoded(data, written, self._schema)

        return decode

    def columns(self, kind: pa.DataType) -> None:
        return None

    def encode(self, value: Any) -> bytes:
        data = io.BytesIO()
        try:
            fastavro.validate(value, self._schema)
            fastavro.schemaless_writer(data, self._schema, value, strict_allow_default=True)
        except ValidationError as error:
            problems = "; ".join(str(one) for one in error.errors)
            raise InvalidData(problems[:REASON_CHARACTERS_MAX]) from None
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - the writer has no error of its own
            raise InvalidData(str(error)[:REASON_CHARACTERS_MAX] or type(error).__name__) from None
        return data.getvalue()


def _has_endless_arrays(schema: Schema, entered: set[int]) -> bool:
    if id(schema) in entered:
        return False
    entered.add(id(schema))
    match schema:
        case Array():
            return _is_empty(schema.items, set()) or _has_endless_arrays(schema.items, entered)
        case Map():
            return _has_endless_arrays(schema.values, entered)
        case Union():
            return any(_has_endless_arrays(branch, entered) for branch in schema.branches)
        case Record():
            return any(_has_endless_arrays(field.schema, entered) for field in schema.fields)
    return False


def _is_empty(schema: Schema, entered: set[int]) -> bool:
    """Are values of this type encoded as no bytes?"""
    match schema:
        case Primitive():
            return schema.type == NULL
        case Fixed():
            return schema.size == 0
        case Record():
            if id(schema) in entered:
                return True
            entered.add(id(schema))
            return all(_is_empty(field.schema, entered) for field in schema.fields)
    return False


shape = AvroShape
