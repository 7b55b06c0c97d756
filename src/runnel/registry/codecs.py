"""Encoding and decoding messages with schemas of any format.

The module of a format is imported when a schema of it is used for the first time: commands that use Avro do
not load the library of Protobuf, and brokers load none.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple, Protocol

from runnel.registry.format import AVRO, JSON, PROTOBUF, InvalidSchema, ParsedSchema, ReferencedSchema

_MODULES: Mapping[str, str] = {
    AVRO: "runnel.registry.avro.codec",
    JSON: "runnel.registry.json_schema.codec",
    PROTOBUF: "runnel.registry.protobuf.codec",
}


class Decoded(NamedTuple):
    """The value of a message in JSON."""

    value: Any
    message: str | None = None
    """The full name of the message type; None for formats whose schemas define one type only."""


class Codec(Protocol):
    """Encodes and decodes messages of one schema."""

    def encode(self, text: str, message: str | None = None) -> bytes:
        """Data of a JSON text. `message` is the name of a message type. Raises InvalidData."""

    def decode(self, data: bytes) -> Decoded:
        """The value of data, from which it can be encoded again. Raises InvalidData."""

    def shown(self, data: bytes) -> Any:
        """The decoded value in a readable form. Raises InvalidData."""


def codec_of(kind: str, schema: ParsedSchema) -> Codec:
    """The codec of a schema. Raises InvalidSchema if its format is not known."""
    codec: Codec = _module(kind).codec(schema)
    return codec


def parsed_codec(kind: str, text: str, references: Sequence[ReferencedSchema]) -> Codec:
    """The codec of a text that a registry has stored. Raises InvalidSchema."""
    return codec_of(kind, parsed(kind, text, references))


def parsed(kind: str, text: str, references: Sequence[ReferencedSchema]) -> ParsedSchema:
    """The schema of a text that a registry has stored. Raises InvalidSchema."""
    found: ParsedSchema = _module(kind).STORED_FORMAT.parse(text, references)
    return found


def _module(kind: str) -> Any:
    if kind not in _MODULES:
        raise InvalidSchema(f"the format {kind} is not supported")
    return import_module(_MODULES[kind])
