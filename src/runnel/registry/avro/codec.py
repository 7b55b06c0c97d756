"""Messages of an Avro schema."""

from typing import Any

from runnel.registry import json_data
from runnel.registry.avro import STORED_FORMAT, decoding
from runnel.registry.avro.encoding import encode
from runnel.registry.avro.schema import AvroSchema
from runnel.registry.codecs import Decoded

__all__ = ["STORED_FORMAT", "AvroCodec", "codec"]


class AvroCodec:
    """JSON is Avro's JSON encoding; text to encode may leave out the names of union branches."""

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema.schema

    def encode(self, text: str, message: str | None = None) -> bytes:
        return encode(self._schema, json_data.parse(text))

    def decode(self, data: bytes) -> Decoded:
        return Decoded(decoding.decode(self._schema, data))

    def shown(self, data: bytes) -> Any:
        return decoding.shown(self._schema, data)


codec = AvroCodec
