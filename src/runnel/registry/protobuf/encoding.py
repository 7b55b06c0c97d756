"""JSON as records with a Protobuf schema."""

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from google.protobuf import json_format, message_factory
from google.protobuf.message import EncodeError

from runnel.registry import json_data
from runnel.registry.protobuf import limits
from runnel.registry.protobuf.records import InvalidRecord, Messages, write_message_indexes

# The last four: times out of range, null where a message is expected, fields named like attributes.
_ENCODING_ERRORS = (json_format.Error, EncodeError, ValueError, TypeError, AttributeError, RecursionError)
_FIELD = re.compile(r"Failed to parse (\S+) field: ")
_PLACE = re.compile(r'(?s)(.*) at "?[\w.]+?"?\.([^\s"]+)"?')
_FIELDS_OF_MESSAGE = re.compile(r"(?s)\n Available Fields\(except extensions\): .*")
_WITH_OTHER_JSON = "google.protobuf."
"""The package of messages whose JSON may be other than an object."""
_NAMES_SHOWN = 20


class Encoder(Messages):
    """Encodes the records of one schema."""

    def encode(self, text: str, name: str | None = None) -> bytes:
        """The record of a text in protobuf's JSON mapping: message indexes and payload. Raises InvalidData.

        `name` is that of a message, with or without the package; by default the first one of the schema.
        Fields may have their declared names or those of JSON.
        """
        indexes = (0,) if name is None else self.indexes_of(name)
        descriptor = self.message(indexes)
        value = json_data.parse(text)
        if not isinstance(value, dict) and not descriptor.full_name.startswith(_WITH_OTHER_JSON):
            raise InvalidRecord(f"{json_data.shown(value)} is not a message {descriptor.full_name}")
        message = message_factory.GetMessageClass(descriptor)()
        try:
            json_format.ParseDict(
                value, message, descriptor_pool=self.pool, max_recursion_depth=limits.RECORD_DEPTH_MAX
            )
            payload: bytes = message.SerializeToString(deterministic=True)
        except _ENCODING_ERRORS as error:
            raise InvalidRecord(_problem(error)) from error
        return write_message_indexes(indexes) + payload

    def indexes_of(self, name: str) -> tuple[int, ...]:
        """The indexes of a message, by its name with or without the package. Raises InvalidRecord."""
        package = self._file.package
        for candidate in (name, f"{package}.{name}"):
            if candidate in self._names:
                return self._names[candidate]
        known = ", ".join(list(self._names)[:_NAMES_SHOWN])
        raise InvalidRecord(f"the schema has no message {name}; its messages are {known}")

    @cached_property
    def _names(self) -> dict[str, tuple[int, ...]]:
        return dict(_named(self._file.message_types_by_name.values(), ()))


def _named(messages: Any, outer: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
    for index, message in enumerate(messages):
        if not message.GetOptions().map_entry:
            yield message.full_name, (*outer, index)
            yield from _named(message.nested_types, (*outer, index))


def _problem(error: Exception) -> str:
    """What is wrong, with the path of the field, which protobuf states in several forms."""
    text = _FIELDS_OF_MESSAGE.sub("", str(error)).strip()
    fields = []
    while found := _FIELD.match(text):
        fields.append(found[1])
        text = text[found.end() :]
    text = text.rstrip(".")
    if placed := _PLACE.fullmatch(text):
        text, fields = placed[1], [placed[2]]
    return json_data.at(fields, " ".join(text.split()))
