"""The formats of schemas by their names."""

from collections.abc import Mapping

from runnel.registry import avro, json_schema, protobuf
from runnel.registry.format import AVRO, JSON, PROTOBUF, SchemaFormat

__all__ = ["AVRO", "FORMATS", "JSON", "PROTOBUF", "STORED_FORMATS"]

FORMATS: Mapping[str, SchemaFormat] = {
    AVRO: avro.FORMAT,
    JSON: json_schema.FORMAT,
    PROTOBUF: protobuf.FORMAT,
}
"""For new schemas."""

STORED_FORMATS: Mapping[str, SchemaFormat] = {**FORMATS, AVRO: avro.STORED_FORMAT}
"""For schemas that a registry has accepted, possibly another one by other rules."""
