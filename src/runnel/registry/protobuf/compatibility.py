"""Whether records of one Protobuf schema can be read with another, by the rules of Confluent's registry.

Fields are matched by number, messages by name within their parent. These changes are incompatible:

| change | reported as |
|---|---|
| the package | PACKAGE_CHANGED |
| a message is removed | MESSAGE_REMOVED |
| a field is no longer what it was: a scalar, a message, a group or a map | FIELD_KIND_CHANGED |
| a scalar or enum gets a type that is encoded otherwise | FIELD_SCALAR_KIND_CHANGED |
| a field has another message as its type | FIELD_NAMED_TYPE_CHANGED |
| a number becomes, or is no longer, repeated or required | FIELD_NUMERIC_LABEL_CHANGED |
| a required field is added, or a field that is no number becomes required | REQUIRED_FIELD_ADDED |
| a required field is removed | REQUIRED_FIELD_REMOVED |
| a required field of a closed enum (all enums of proto2) can have unknown numbers | ENUM_CONST_REMOVED |
| a field of a oneof is removed, but not all of them | ONEOF_FIELD_REMOVED |
| several fields, each of its own, are now in one oneof | MULTIPLE_FIELDS_MOVED_TO_ONEOF |
| a field is now in a oneof with fields of another one | FIELD_MOVED_TO_EXISTING_ONEOF |

Everything else is compatible: adding fields, messages and constants, removing and renaming fields and
constants, reordering messages, making a string or message repeated or no longer so.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from runnel.registry.format import Incompatibility
from runnel.registry.protobuf import limits, model

Descriptor = Any
"""A linked descriptor of protobuf, whose package has no types."""

_SCALAR, _MESSAGE, _GROUP, _MAP = "a scalar", "a message", "a group", "a map"
_STRING = "a length and bytes"
_ENCODINGS = {
    "a varint": ("int32", "int64", "uint32", "uint64", "bool"),
    "a zigzag varint": ("sint32", "sint64"),
    _STRING: ("string", "bytes"),
    "4 bytes": ("fixed32", "sfixed32"),
    "8 bytes": ("fixed64", "sfixed64"),
    "a float": ("float",),
    "a double": ("double",),
}
"""Scalar types that are encoded alike, so that one can become another."""

_ENCODING_OF_TYPE = {model.SCALAR_TYPES[name]: kind for kind, names in _ENCODINGS.items() for name in names}
_ENCODING_OF_TYPE[model.TYPE_ENUM] = "a varint"


def compare(reader: Descriptor, writer: Descriptor) -> list[Incompatibility]:
    """Why records of the file `writer` cannot be read with the file `reader`. Takes time linear in both."""
    comparison = _Comparison()
    if reader.package != writer.package:
        reason = f"The package was {_named(writer.package)}, and is {_named(reader.package)}."
        comparison.report("PACKAGE_CHANGED", "#/", reason)
    comparison.compare_nested(_top_level(reader), _top_level(writer), "#")
    comparison.compare_extensions(reader, writer)
    comparison.run()
    return comparison.found[: limits.INCOMPATIBILITIES_MAX]


@dataclass(slots=True)
class _Comparison:
    """The pairs of messages that were compared or are about to be, and what was found."""

    found: list[Incompatibility] = field(default_factory=list)
    _pending: deque[tuple[Descriptor, Descriptor]] = field(default_factory=deque)
    _seen: set[tuple[str, str]] = field(default_factory=set)
    _enums: dict[tuple[str, str], bool] = field(default_factory=dict)
    _fields: int = 0

    def report(self, kind: str, path: str, message: str) -> None:
        self.found.append(Incompatibility(kind, path, message))

    def run(self) -> None:
        """Compare the pairs that are pending, and those that they lead to."""
        while self._pending and len(self.found) < limits.INCOMPATIBILITIES_MAX:
            reader, writer = self._pending.popleft()
            self._fields += len(reader.fields) + len(writer.fields)
            if self._fields > limits.COMPARED_FIELDS_MAX:
                self.report(
                    "FIELD_NAMED_TYPE_CHANGED", _path(reader), "There are too many messages to compare."
                )
                return
            self._compare_messages(reader, writer)

    def compare_nested(self, reader: Iterable[Descriptor], writer: Iterable[Descriptor], path: str) -> None:
        """Compare messages that are declared in the same scope, by name."""
        present = {message.name: message for message in reader}
        for message in writer:
            if (other := present.get(message.name)) is not None:
                self._add(other, message)
            else:
                reason = f"Message {message.full_name} is removed."
                self.report("MESSAGE_REMOVED", f"{path}/{message.name}", reason)

    def compare_extensions(self, reader: Descriptor, writer: Descriptor) -> None:
        """Compare fields that the files add to messages. Those of options are not part of records."""
        old = {(each.containing_type.full_name, each.number): each for each in _extensions(writer)}
        for extension in _extensions(reader):
            previous = old.get((extension.containing_type.full_name, extension.number))
            if previous is not None and extension.containing_type.file.name != model.DESCRIPTOR_PROTO:
                self._compare_fields(extension, previous, f"#/{extension.name}")

    def _add(self, reader: Descriptor, writer: Descriptor) -> None:
        pair = (reader.full_name, writer.full_name)
        if pair not in self._seen:
            self._seen.add(pair)
            self._pending.append((reader, writer))

    def _compare_messages(self, reader: Descriptor, writer: Descriptor) -> None:
        path = _path(reader)
        new = {each.number: each for each in reader.fields}
        old = {each.number: each for each in writer.fields}
        self._compare_oneofs(reader, old, path)
        kept_oneofs = _kept_oneofs(reader, writer, new)
        for number in sorted(new.keys() | old.keys()):
            if number not in new:
                self._report_removed(old[number], kept_oneofs, path)
            elif number in old:
                self._compare_fields(new[number], old[number], _field_path(path, new[number]))
            elif new[number].is_required:
                self._report_field(
                    "REQUIRED_FIELD_ADDED", f"{path}/{number}", new[number], "is new and required"
                )
        self.compare_nested(_declared(reader), _declared(writer), path)

    def _compare_oneofs(self, reader: Descriptor, old: dict[int, Descriptor], path: str) -> None:
        """Fields that exclude each other must have done so before, or not have existed."""
        for oneof in _oneofs(reader):
            members = [old[each.number] for each in oneof.fields if each.number in old]
            origins = {_oneof_name(each) or each.number for each in members}
            if len(origins) < 2:
                continue
            moved = [each for each in members if _oneof_name(each) is None]
            kind = "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if len(moved) > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF"
            listed = ", ".join(each.name for each in members[:10])
            reason = f"could be set together before: {listed}"
            message = f"Oneof {reader.full_name}.{oneof.name} contains fields that {reason}."
            self.report(kind, f"{path}/{oneof.name}", message)

    def _report_removed(self, removed: Descriptor, kept_oneofs: set[str], path: str) -> None:
        if removed.is_required:
            reason = "was required, and is removed"
            self._report_field("REQUIRED_FIELD_REMOVED", f"{path}/{removed.number}", removed, reason)
        oneof = _oneof_name(removed)
        if oneof in kept_oneofs:
            reason = f"is removed, but its oneof {oneof} is not removed as a whole"
            self._report_field("ONEOF_FIELD_REMOVED", f"{path}/{oneof}/{removed.number}", removed, reason)

    def _compare_fields(self, reader: Descriptor, writer: Descriptor, path: str) -> None:
        kind, previous_kind = _kind(reader), _kind(writer)
        if kind != previous_kind:
            reason = f"was {previous_kind}, and is {kind}"
            self._report_field("FIELD_KIND_CHANGED", path, reader, reason)
        elif kind == _MAP:
            for new, old in zip(reader.message_type.fields, writer.message_type.fields, strict=True):
                self._compare_map_part(reader, new, old, path)
        elif kind == _SCALAR:
            self._compare_scalars(reader, writer, path)
        else:
            self._compare_required(reader, writer, path)
            self._compare_named(reader, reader.message_type, writer.message_type, path)

    def _compare_map_part(self, owner: Descriptor, reader: Descriptor, writer: Descriptor, path: str) -> None:
        """Keys or values of a map."""
        kind, previous_kind = _kind(reader), _kind(writer)
        if kind != previous_kind:
            reason = f"is a map whose {reader.name} was {previous_kind}, and is {kind}"
            self._report_field("FIELD_KIND_CHANGED", path, owner, reason)
        elif kind != _SCALAR:
            self._compare_named(owner, reader.message_type, writer.message_type, path)
        elif _ENCODING_OF_TYPE[reader.type] != _ENCODING_OF_TYPE[writer.type]:
            reason = f"is a map whose {reader.name} was {_type(writer)}, and is {_type(reader)}"
            self._report_field("FIELD_SCALAR_KIND_CHANGED", path, owner, reason)

    def _compare_scalars(self, reader: Descriptor, writer: Descriptor, path: str) -> None:
        kind, previous_kind = _ENCODING_OF_TYPE[reader.type], _ENCODING_OF_TYPE[writer.type]
        if kind != previous_kind:
            encoding = f"which is encoded as {kind} instead of {previous_kind}"
            reason = f"was {_type(writer)}, and is {_type(reader)}, {encoding}"
            self._report_field("FIELD_SCALAR_KIND_CHANGED", path, reader, reason)
        elif kind == _STRING:
            self._compare_required(reader, writer, path)
        elif _label(reader) != _label(writer):
            reason = f"is a number that was {_label(writer)}, and is {_label(reader)}"
            self._report_field("FIELD_NUMERIC_LABEL_CHANGED", path, reader, reason)
        elif reader.is_required and not self._has_all_constants(reader.enum_type, writer.enum_type):
            reason = f"is required, but {reader.enum_type.full_name} lacks constants that it could have"
            self._report_field("ENUM_CONST_REMOVED", path, reader, reason)

    def _has_all_constants(self, reader: Descriptor | None, writer: Descriptor | None) -> bool:
        """Whether an enum is never unknown. A closed enum drops numbers that it does not have."""
        if reader is None or not reader.is_closed:
            return True
        if writer is None:
            return False
        pair = (reader.full_name, writer.full_name)
        if pair not in self._enums:
            numbers = {value.number for value in reader.values}
            self._enums[pair] = all(value.number in numbers for value in writer.values)
        return self._enums[pair]

    def _compare_required(self, reader: Descriptor, writer: Descriptor, path: str) -> None:
        if reader.is_required and not writer.is_required:
            self._report_field("REQUIRED_FIELD_ADDED", path, reader, f"was {_label(writer)}, and is required")

    def _compare_named(self, owner: Descriptor, reader: Descriptor, writer: Descriptor, path: str) -> None:
        """Messages as types. Those of another package are the same if they have the same name in it."""
        if _local_name(reader) == _local_name(writer):
            self._add(reader, writer)
        else:
            reason = f"has type {reader.full_name} instead of {writer.full_name}"
            self._report_field("FIELD_NAMED_TYPE_CHANGED", path, owner, reason)

    def _report_field(self, kind: str, path: str, field: Descriptor, reason: str) -> None:
        self.report(kind, path, f"Field {field.full_name} (number {field.number}) {reason}.")


def _kind(field: Descriptor) -> str:
    if field.message_type is None:
        return _SCALAR
    if field.type == model.TYPE_GROUP:
        return _GROUP
    return _MAP if _is_map_entry(field.message_type) else _MESSAGE


def _is_map_entry(message: Descriptor) -> bool:
    return bool(message.has_options and message.GetOptions().map_entry)


def _label(field: Descriptor) -> str:
    return "repeated" if field.is_repeated else "required" if field.is_required else "optional"


def _type(field: Descriptor) -> str:
    return model.SCALAR_NAMES.get(field.type) or f"enum {field.enum_type.full_name}"


def _oneofs(message: Descriptor) -> list[Descriptor]:
    """The oneofs of a message without those of fields with `optional`."""
    return [each for each in message.oneofs if each.fields and _oneof_name(each.fields[0]) is not None]


def _oneof_name(field: Descriptor) -> str | None:
    """The oneof that a field is declared in, which the implied one of a field with `optional` is not."""
    oneof = field.containing_oneof
    if oneof is None or (len(oneof.fields) == 1 and _is_synthetic(oneof)):
        return None
    return str(oneof.name)


def _is_synthetic(oneof: Descriptor) -> bool:
    name = oneof.fields[0].name
    return str(oneof.name).lstrip("X") == (name if name.startswith("_") else f"_{name}")


def _kept_oneofs(reader: Descriptor, writer: Descriptor, new: dict[int, Descriptor]) -> set[str]:
    """Oneofs of the writer of which something is left: the name, or a field wherever it is now."""
    names = {oneof.name for oneof in _oneofs(reader)}
    return {
        oneof.name
        for oneof in _oneofs(writer)
        if oneof.name in names or any(each.number in new for each in oneof.fields)
    }


def _top_level(file: Descriptor) -> list[Descriptor]:
    groups = _groups(file.extensions_by_name.values())
    return [each for each in file.message_types_by_name.values() if each.full_name not in groups]


def _declared(message: Descriptor) -> list[Descriptor]:
    """Nested messages without those that maps and groups imply."""
    groups = _groups([*message.fields, *message.extensions])
    return [each for each in message.nested_types if not _is_map_entry(each) and each.full_name not in groups]


def _groups(fields: Iterable[Descriptor]) -> set[str]:
    return {
        each.message_type.full_name
        for each in fields
        if each.type == model.TYPE_GROUP and each.message_type.name.lower() == each.name
    }


def _extensions(file: Descriptor) -> list[Descriptor]:
    found = list(file.extensions_by_name.values())
    pending = list(file.message_types_by_name.values())
    while pending:
        message = pending.pop()
        found += message.extensions
        pending += message.nested_types
    return found


def _local_name(message: Descriptor) -> str:
    """The name of a message without its package."""
    package = message.file.package
    return str(message.full_name[len(package) + 1 :] if package else message.full_name)


def _path(message: Descriptor) -> str:
    return "#/" + _local_name(message).replace(".", "/")


def _field_path(path: str, field: Descriptor) -> str:
    oneof = _oneof_name(field)
    return f"{path}/{oneof}/{field.number}" if oneof else f"{path}/{field.number}"


def _named(package: str) -> str:
    return package or "empty"
