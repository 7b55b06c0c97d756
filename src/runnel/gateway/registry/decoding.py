"""Messages in the registry's framing: a zero byte, the id of a schema in four bytes, data."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from runnel.client.errors import ClientError
from runnel.gateway.registry.store import Store
from runnel.registry import lookup
from runnel.registry.avro.decoding import InvalidData, decode
from runnel.registry.avro.schema import AvroSchema
from runnel.registry.checks import Verdicts
from runnel.registry.errors import RegistryError
from runnel.registry.format import InvalidSchema, ParsedSchema
from runnel.registry.formats import AVRO, JSON, PROTOBUF
from runnel.registry.protobuf import Decoder, InvalidRecord, ProtobufSchema, read_message_indexes
from runnel.registry.state import RegistryState, Version

MAGIC = b"\x00"
HEADER_BYTES = 5
DATA_BYTES_MAX = 512 * 1024
UNDECODABLE = (
    RegistryError,
    ClientError,
    InvalidSchema,
    InvalidData,
    InvalidRecord,
    ValueError,
    RecursionError,
)


@dataclass(frozen=True, slots=True)
class Decoded:
    """A message, and the schema it was written with."""

    version: Version
    text: str
    """Indented JSON."""


def schema_id_of(value: bytes | None) -> int | None:
    """The id of the schema that a value was written with; None if it is not framed."""
    if value is None or value[:1] != MAGIC or not HEADER_BYTES <= len(value) <= DATA_BYTES_MAX:
        return None
    return int.from_bytes(value[1:HEADER_BYTES], "big")


async def decoded_by_registry(store: Store, value: bytes | None) -> Decoded | None:
    """A framed message decoded; None if it is not framed, or its schema is not known or does not fit."""
    schema_id = schema_id_of(value)
    if schema_id is None or value is None:
        return None
    data = value[HEADER_BYTES:]

    def find(state: RegistryState, verdicts: Verdicts) -> Decoded | None:
        version = lookup.by_id(state, schema_id)
        decoder = DECODERS.get(version.content.type)
        if decoder is None:
            return None
        found = decoder(state.parsed(version), data)
        return Decoded(version, json.dumps(found, indent=2, ensure_ascii=False))

    try:
        return await store.read(find)
    except UNDECODABLE:
        return None


def _avro(schema: ParsedSchema, data: bytes) -> Any:
    assert isinstance(schema, AvroSchema)
    return decode(schema.schema, data)


def _json(schema: ParsedSchema, data: bytes) -> Any:
    return json.loads(data)


def _protobuf(schema: ParsedSchema, data: bytes) -> Any:
    assert isinstance(schema, ProtobufSchema)
    indexes, position = read_message_indexes(data)
    return Decoder(schema).decode(data[position:], indexes)


DECODERS: Mapping[str, Callable[[ParsedSchema, bytes], Any]] = {
    AVRO: _avro,
    JSON: _json,
    PROTOBUF: _protobuf,
}
