"""Kafka's wire format: messages are declared once for all versions, codecs are compiled per version.

A message comes in as `decode(FetchRequest, 12, frame, position)` and goes out as `encode(response, 12)`.
Malformed input raises MalformedMessage and nothing else.
`python -m runnel.wire show Fetch 12` prints a compiled codec.
"""

from runnel.wire.codec import AnyMessage, Buffer, decode, decode_prefix, decode_request, encode, encoded
from runnel.wire.primitives import (
    ZERO_UUID,
    MalformedMessage,
    Pieces,
    TooManyElements,
    UnknownVersion,
    boolean,
    bytes_,
    float64,
    int8,
    int16,
    int32,
    int64,
    records_,
    string,
    uint16,
    uint32,
    uuid,
)
from runnel.wire.struct import Data, Field, Message, Request, Response, Struct, field, fields_of, is_flexible

__all__ = [
    "ZERO_UUID",
    "AnyMessage",
    "Buffer",
    "Data",
    "Field",
    "MalformedMessage",
    "Message",
    "Pieces",
    "Request",
    "Response",
    "Struct",
    "TooManyElements",
    "UnknownVersion",
    "boolean",
    "bytes_",
    "decode",
    "decode_prefix",
    "decode_request",
    "encode",
    "encoded",
    "field",
    "fields_of",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "is_flexible",
    "records_",
    "string",
    "uint16",
    "uint32",
    "uuid",
]
