"""The order in which the parts of a message are printed.

A map field or a group implies a nested message, whose index among the nested messages depends on where the
field is declared. As records name their type by such indexes, nested messages are printed between the
fields.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from runnel.registry.format import InvalidSchema
from runnel.registry.protobuf import model
from runnel.registry.protobuf.model import Message


@dataclass(frozen=True, slots=True)
class Fields:
    """Fields that are declared together: one, the members of a oneof, or extensions of the same message."""

    fields: Sequence[Message]
    implied: Sequence[Message]
    """The messages that its groups and maps imply."""


Part = Fields | Message
"""Fields, or a nested message with a declaration of its own."""


def message_layout(message: Message, full_name: str) -> list[Part]:
    """Fields, extensions and nested messages in the order of their declarations."""
    runs = [*_runs(message.field), *_runs(message.extension)]
    return _interleaved(runs, message.nested_type, full_name)


def file_layout(file: Message) -> list[Part]:
    """Extensions and messages in the order of their declarations."""
    return _interleaved(_runs(file.extension), file.message_type, file.package)


def in_declared_order(parts: Sequence[Part]) -> list[Message]:
    """The nested messages of a layout as a parser finds them."""
    order: list[Message] = []
    for part in parts:
        order += part.implied if isinstance(part, Fields) else [part]
    return order


def _runs(fields: Sequence[Message]) -> list[list[Message]]:
    """Fields that follow each other in one oneof or extend the same message; any other is alone."""
    runs: list[list[Message]] = []
    previous: object = None
    for field in fields:
        key = _shared(field)
        if key is None or key != previous:
            runs.append([])
        runs[-1].append(field)
        previous = key
    return runs


def _shared(field: Message) -> object:
    if field.extendee:
        return field.extendee
    return field.oneof_index if field.HasField("oneof_index") and not field.proto3_optional else None


def _interleaved(runs: Sequence[Sequence[Message]], messages: Sequence[Message], scope: str) -> list[Part]:
    """Each run after the messages that come before those it implies, the other messages at the end."""
    indexes = {f"{scope}.{each.name}" if scope else each.name: index for index, each in enumerate(messages)}
    implied_by = [_implied(run, indexes, messages) for run in runs]
    all_implied = set().union(*implied_by)
    declared = [index for index in range(len(messages)) if index not in all_implied]
    parts: list[Part] = []
    position = 0
    for run, implied in zip(runs, implied_by, strict=True):
        first = min(implied, default=0)
        while position < len(declared) and declared[position] < first:
            parts.append(messages[declared[position]])
            position += 1
        parts.append(Fields(run, [messages[index] for index in implied]))
    return parts + [messages[index] for index in declared[position:]]


def _implied(run: Sequence[Message], indexes: dict[str, int], messages: Sequence[Message]) -> list[int]:
    """The indexes of the messages that fields imply, removed from `indexes`: each is implied once."""
    found = []
    for field in run:
        if field.type not in (model.TYPE_GROUP, model.TYPE_MESSAGE):
            continue
        type_name = field.type_name.removeprefix(".")
        index = indexes.get(type_name)
        is_group = field.type == model.TYPE_GROUP
        if index is not None and (
            messages[index].name.lower() == field.name if is_group else model.is_map_entry(messages[index])
        ):
            found.append(index)
            del indexes[type_name]
        elif is_group:
            raise InvalidSchema(
                f"{field.name}: the message of a group has to be declared with it, unlike {type_name}"
            )
    return found
