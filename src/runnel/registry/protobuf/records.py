"""Records with a Protobuf schema: which message a record is, its value as a dict, and the way back."""

from typing import Any

from google.protobuf import json_format, message_factory
from google.protobuf.message import DecodeError

from runnel.registry.format import InvalidData
from runnel.registry.protobuf import limits
from runnel.registry.protobuf.linking import SCHEMA_FILE
from runnel.registry.protobuf.schema import ProtobufSchema

# The last three: times out of range, unknown types in google.protobuf.Any, fields named like attributes.
_DECODING_ERRORS = (DecodeError, json_format.Error, ValueError, TypeError, AttributeError)


class InvalidRecord(InvalidData):
    """Bytes are not a record of the schema; the message says why."""


def read_message_indexes(data: bytes, position: int = 0) -> tuple[tuple[int, ...], int]:
    """The message indexes of a record, and the position of the payload after them. Raises InvalidRecord.

    They are a count and as many numbers, all zigzag varints; (0,), the first message, is written as the
    count 0.
    """
    count, position = _zigzag(data, position)
    if count == 0:
        return (0,), position
    if not 0 < count <= limits.MESSAGE_INDEXES_MAX:
        raise InvalidRecord(f"the record has {count} message indexes")
    indexes = []
    for _ in range(count):
        index, position = _zigzag(data, position)
        indexes.append(index)
    return tuple(indexes), position


def write_message_indexes(indexes: tuple[int, ...]) -> bytes:
    """The bytes before the payload of a record whose message is at `indexes`."""
    if indexes == (0,):
        return b"\0"
    return b"".join(_zigzag_bytes(number) for number in (len(indexes), *indexes))


class Messages:
    """The messages of one schema. It keeps the schema linked, for many records."""

    def __init__(self, schema: ProtobufSchema) -> None:
        self.pool = schema.link()
        self._file = _effective_file(self.pool.FindFileByName(SCHEMA_FILE))

    def message(self, indexes: tuple[int, ...] = (0,)) -> Any:
        """The descriptor of the message at `indexes`. Raises InvalidRecord."""
        messages = list(self._file.message_types_by_name.values())
        message = None
        for index in indexes:
            if not 0 <= index < len(messages):
                listed = ", ".join(map(str, indexes))
                raise InvalidRecord(f"the schema has no message with the indexes {listed}")
            message = messages[index]
            messages = message.nested_types
        if message is None:
            raise InvalidRecord("there are no message indexes")
        return message


class Decoder(Messages):
    """Decodes the records of one schema."""

    def decode(self, payload: bytes, indexes: tuple[int, ...] = (0,)) -> dict[str, Any]:
        """A payload in protobuf's JSON mapping, with declared names of fields. Raises InvalidRecord.

        Fields without presence have their default value if they are absent.
        """
        descriptor = self.message(indexes)
        try:
            message = message_factory.GetMessageClass(descriptor).FromString(payload)
            decoded: dict[str, Any] = json_format.MessageToDict(
                message,
                preserving_proto_field_name=True,
                always_print_fields_with_no_presence=True,
                descriptor_pool=self.pool,
            )
        except _DECODING_ERRORS as error:
            raise InvalidRecord(
                f"the payload cannot be decoded as {descriptor.full_name}: {error}"
            ) from error
        return decoded


def _effective_file(file: Any) -> Any:
    """A file that only makes another one public has the messages of that one, as in Confluent's registry."""
    is_wrapper = (
        len(file.dependencies) == len(file.public_dependencies) == 1
        and not file.message_types_by_name
        and not file.enum_types_by_name
        and not file.extensions_by_name
        and not file.services_by_name
    )
    return file.public_dependencies[0] if is_wrapper else file


def _zigzag(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if position >= len(data):
            raise InvalidRecord("the record ends within its message indexes")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
    raise InvalidRecord("a message index has more than 32 bits")


def _zigzag_bytes(number: int) -> bytes:
    value = (number << 1) ^ (number >> 31)
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
