"""Decodes values with the schemas that they were written with, to the type of one schema."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.types import DataType

from runnel.pipelines.errors import BadOption
from runnel.pipelines.registered.options import ValueOptions
from runnel.pipelines.registered.schemas import RegisteredSchema, Schemas
from runnel.pipelines.registered.shapes import Decode, Shape, shape_of
from runnel.pipelines.source.values import Decoded, Malformed, decode_each
from runnel.registry.format import InvalidData, InvalidSchema
from runnel.registry.framing import HEADER_BYTES, NotFramed, unframed

LOOK_UP_WAIT_S = 10.0
"""How long the start of a query waits for the registry, as it does for a broker."""


def looked_up(options: ValueOptions, schema_id: int | None = None) -> ValueOptions:
    """The options with their schema: the one of an id that was looked up before, or that of the subject."""
    if options.schema is not None:
        return options
    schemas = Schemas(options.url, options.user, LOOK_UP_WAIT_S)
    found = schemas.by_id(schema_id) if schema_id is not None else None
    found = found or schemas.of_subject(options.subject, options.version)
    if found.type != options.type:
        raise BadOption(f"the schema of {options.subject} is of type {found.type}, not {options.type}")
    return replace(options, schema=found)


def reader_schema(options: ValueOptions) -> RegisteredSchema:
    """The schema whose type the decoded values have."""
    assert options.schema is not None, "it is looked up when a query starts"
    return options.schema


def decoded_type(options: ValueOptions) -> DataType:
    """The type of decoded values; BadOption if the schema has none."""
    return shape_of(reader_schema(options), options.message).type


class RegisteredDecoder:
    """Decodes framed values into columns of one type."""

    def __init__(self, options: ValueOptions, kind: pa.DataType) -> None:
        self._shape: Shape = shape_of(reader_schema(options), options.message)
        self._type = options.type
        self._kind = kind
        self._columns = self._shape.columns(kind)
        self._schemas = Schemas(options.url, options.user, options.wait_s)
        self._decoders: dict[int, Decode | str] = {}
        """By the id of the writer's schema; a text says why its data cannot be decoded."""

    def decode(self, column: pa.BinaryArray) -> Decoded:
        """Decode a column of values. Raises SchemaUnavailable."""
        texts = column.to_pylist()
        ids = [_schema_id(text) for text in texts]
        for schema_id in {one for one in ids if one is not None} - self._decoders.keys():
            # Before anything is decoded: a registry that does not respond is no property of a value.
            self._decoders[schema_id] = self._decoder(schema_id)
        decoded = self._decode_whole(column, texts, ids) or decode_each(column, self._kind, self._decode_one)
        return replace(decoded, schema_ids=pa.array(ids, pa.int32()))

    def _decode_whole(
        self, column: pa.BinaryArray, texts: list[bytes | None], ids: list[int | None]
    ) -> Decoded | None:
        """The values if all are JSON, which is decoded by columns."""
        if self._columns is None or any(
            text is not None and (schema_id is None or isinstance(self._decoders[schema_id], str))
            for text, schema_id in zip(texts, ids, strict=True)
        ):
            return None
        payloads = [None if text is None else text[HEADER_BYTES:] for text in texts]
        decoded = self._columns.decode(pa.array(payloads, pa.binary()))
        if decoded.errors.null_count == len(texts):
            return decoded
        raw = [
            None if error is None else text
            for text, error in zip(texts, decoded.errors.to_pylist(), strict=True)
        ]
        return replace(decoded, raw=pa.array(raw, pa.binary()))

    def _decode_one(self, text: bytes) -> Any:
        try:
            schema_id, data = unframed(text)
            decode = self._decoders[schema_id]
            if isinstance(decode, str):
                raise Malformed(decode)
            return decode(data)
        except InvalidData as error:
            raise Malformed(str(error)) from None

    def _decoder(self, schema_id: int) -> Decode | str:
        """Decodes data of a schema, or says why that is impossible."""
        try:
            writer = self._schemas.by_id(schema_id)
            if writer is None:
                return f"the registry has no schema {schema_id}"
            if writer.type != self._type:
                return f"schema {schema_id} is of type {writer.type}, not {self._type}"
            return self._shape.decoder(writer.parsed(), self._kind)
        except (InvalidSchema, InvalidData, BadOption) as error:
            return f"schema {schema_id} cannot be used: {error}"


def _schema_id(text: bytes | None) -> int | None:
    if text is None:
        return None
    try:
        return unframed(text)[0]
    except NotFramed:
        return None
