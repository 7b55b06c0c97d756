"""Messages of a Protobuf schema."""

from functools import cached_property
from typing import Any

from runnel.registry.codecs import Decoded
from runnel.registry.protobuf.encoding import Encoder
from runnel.registry.protobuf.records import Decoder, read_message_indexes
from runnel.registry.protobuf.schema import FORMAT, ProtobufSchema

STORED_FORMAT = FORMAT


class ProtobufCodec:
    """JSON is protobuf's JSON mapping, with declared names of fields."""

    def __init__(self, schema: ProtobufSchema) -> None:
        self._schema = schema

    def encode(self, text: str, message: str | None = None) -> bytes:
        return self._encoder.encode(text, message)

    def decode(self, data: bytes) -> Decoded:
        indexes, position = read_message_indexes(data)
        name: str = self._decoder.message(indexes).full_name
        return Decoded(self._decoder.decode(data[position:], indexes), name)

    def shown(self, data: bytes) -> Any:
        return self.decode(data).value

    @cached_property
    def _encoder(self) -> Encoder:
        return Encoder(self._schema)

    @cached_property
    def _decoder(self) -> Decoder:
        return Decoder(self._schema)


codec = ProtobufCodec
