"""JSON schemas as column types. Members are matched by name, those that are absent are null."""

import json
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from runnel.pipelines.registered.json_form import key_text, scalar_json
from runnel.pipelines.registered.shapes import Decode
from runnel.pipelines.source.json_values import ROOT, JsonDecoder
from runnel.registry.codecs import codec_of
from runnel.registry.format import JSON, InvalidData
from runnel.registry.json_schema import JsonSchema
from runnel.registry.json_schema.schema import ANY_TYPE, Schema

_TYPES: dict[frozenset[str], DataType] = {
    frozenset({"boolean"}): BooleanType(),
    frozenset({"integer"}): LongType(),
    frozenset({"integer", "fraction"}): DoubleType(),
    frozenset({"fraction"}): DoubleType(),
}
_TEXT_FORMATS: dict[Any, DataType] = {"date-time": TimestampType(), "date": DateType()}
_NULL = frozenset({"null"})


class JsonShape:
    """An object as a struct; parts that have no certain type are JSON text."""

    def __init__(self, schema: JsonSchema, message: str | None) -> None:
        self._codec = codec_of(JSON, schema)
        self._texts: set[str] = set()
        self._required: set[str] = set()
        self._maps: set[str] = set()
        self.type = self._type(schema.root, ROOT, ())

    def decoder(self, writer: JsonSchema, kind: pa.DataType) -> Decode:
        return self.columns(kind).decode_one

    def columns(self, kind: pa.DataType) -> JsonDecoder:
        return JsonDecoder(kind, frozenset(self._texts))

    def encode(self, value: Any) -> bytes:
        try:
            text = json.dumps(self._json(value, ROOT), ensure_ascii=False, allow_nan=False)
        except (ValueError, TypeError) as error:
            raise InvalidData(str(error)) from None
        return self._codec.encode(text)

    def _json(self, value: Any, path: str) -> Any:
        if path in self._texts and isinstance(value, str):
            return json.loads(value)
        if isinstance(value, dict):
            named = {key_text(name): one for name, one in value.items()}
            return {
                name: self._json(one, self._member(path, name))
                for name, one in named.items()
                if one is not None or f"{path}.{name}" in self._required
            }
        if isinstance(value, list):
            return [self._json(one, f"{path}[]") for one in value]
        return scalar_json(value)

    def _member(self, path: str, name: str) -> str:
        return f"{path}{{}}" if f"{path}{{}}" in self._maps else f"{path}.{name}"

    def _type(self, schema: Schema, path: str, entered: tuple[Schema, ...]) -> DataType:
        if schema.target is not None and schema.is_reference():
            schema = schema.target
        if schema in entered:
            return self._text(path)
        branch = _only_branch(schema)
        entered = (*entered, schema)
        if branch is not None:
            return self._type(branch, path, entered)
        types = (schema.types & schema.values_types) - _NULL
        if types == {"object"}:
            return self._object(schema, path, entered)
        if types == {"array"} and schema.items is not None and not schema.prefix_items:
            return ArrayType(self._type(schema.items, f"{path}[]", entered))
        if types == {"string"}:
            named = schema.raw.get("format") if isinstance(schema.raw, dict) else None
            return _TEXT_FORMATS.get(named, StringType()) if isinstance(named, str) else StringType()
        return _TYPES.get(types) or self._text(path)

    def _object(self, schema: Schema, path: str, entered: tuple[Schema, ...]) -> DataType:
        if schema.properties:
            self._required |= {f"{path}.{name}" for name in schema.required}
            return StructType(
                [
                    StructField(name, self._type(one, f"{path}.{name}", entered))
                    for name, one in schema.properties.items()
                ]
            )
        others = schema.additional_properties
        if others is None or others.rejects_all or schema.pattern_properties:
            return self._text(path)
        self._maps.add(f"{path}{{}}")
        return MapType(StringType(), self._type(others, f"{path}{{}}", entered))

    def _text(self, path: str) -> DataType:
        self._texts.add(path)
        return StringType()


def _only_branch(schema: Schema) -> Schema | None:
    """The schema of a value that is null or of this schema."""
    if schema.types != ANY_TYPE or schema.properties or len(schema.combinations) != 1:
        return None
    ((keyword, branches),) = schema.combinations.items()
    others = [branch for branch in branches if branch.types != _NULL]
    return others[0] if keyword != "allOf" and len(others) == 1 else None


shape = JsonShape
