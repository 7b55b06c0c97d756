"""What a schema is in Spark: a column type, and conversions between values of it and data of the format."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.types import DataType

from runnel.pipelines.errors import BadOption
from runnel.pipelines.registered.schemas import RegisteredSchema
from runnel.pipelines.source.json_values import JsonDecoder
from runnel.registry.format import AVRO, JSON, PROTOBUF, InvalidSchema, ParsedSchema

_MODULES = {
    AVRO: "runnel.pipelines.registered.avro_shape",
    JSON: "runnel.pipelines.registered.json_shape",
    PROTOBUF: "runnel.pipelines.registered.protobuf_shape",
}

Decode = Callable[[bytes], Any]
"""Decodes the data of one value, without the frame; raises Malformed or InvalidData."""


class Shape(Protocol):
    """A schema as the type of a column."""

    @property
    def type(self) -> DataType:
        """The type of values; BadOption if Spark has none."""

    def decoder(self, writer: ParsedSchema, kind: pa.DataType) -> Decode:
        """Decodes data of another schema, to values of this type. Raises InvalidData."""

    def columns(self, kind: pa.DataType) -> JsonDecoder | None:
        """Decodes whole columns of data, faster than value by value; None if the format is not JSON."""

    def encode(self, value: Any) -> bytes:
        """The data of a value of any type that fits the schema. Raises InvalidData."""


def shape_of(schema: RegisteredSchema, message: str | None) -> Shape:
    """The shape of a schema. Raises BadOption if it has none."""
    try:
        shape: Shape = import_module(_MODULES[schema.type]).shape(schema.parsed(), message)
    except InvalidSchema as error:
        raise BadOption(f"schema {schema.id} cannot be used: {error}") from None
    return shape
