"""Rules of the language that the linker does not check, but protoc does."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NoReturn

from runnel.registry.format import InvalidSchema
from runnel.registry.protobuf import limits, model
from runnel.registry.protobuf.elements import Elements
from runnel.registry.protobuf.literals import shortened
from runnel.registry.protobuf.model import Message

_IMPLEMENTATION_NUMBERS = range(19000, 20000)
_NAMED_TYPES = (model.TYPE_MESSAGE, model.TYPE_GROUP, model.TYPE_ENUM)
_UNPACKABLE = (model.TYPE_STRING, model.TYPE_BYTES, model.TYPE_MESSAGE, model.TYPE_GROUP)
_LONG_INTEGERS = tuple(kind for kind, bits in model.INTEGER_BITS.items() if bits >= 63)
_MAP_KEYS = (*model.INTEGER_BITS, model.TYPE_STRING, model.TYPE_BOOL)
_OPTIONS = {f".{name}" for name in model.OPTION_CLASSES}

Range = tuple[int, int, str]
"""First and last number, and what they are reserved for."""


def check(elements: Elements) -> None:
    """Raise InvalidSchema if a file, whose names are resolved, breaks a rule."""
    file = elements.file
    for name, message in elements.messages:
        _check_message(name, message, file.syntax)
    for name, field in elements.all_fields():
        _check_field(name, field, file.syntax)
    extended: dict[tuple[str, int], str] = {}
    for name, extension in elements.extensions:
        _check_extension(name, extension, file.syntax)
        if (other := extended.setdefault((extension.extendee, extension.number), name)) != name:
            _fail(name, f"its number, {extension.number}, is that of {other}")
    for name, enum in elements.enums:
        _check_enum(name, enum, file.syntax)


def check_linked(file: Message) -> None:
    """Raise InvalidSchema if a linked file breaks a rule about types of others."""
    pending = list(file.message_types_by_name.values())
    while pending:
        message = pending.pop()
        pending += message.nested_types
        for field in message.fields:
            if field.enum_type is not None and field.enum_type.is_closed and not _can_be_closed(field):
                _fail(field.full_name, f"{field.enum_type.full_name} is a closed enum, such as all of proto2")


def _can_be_closed(field: Message) -> bool:
    """A field that is never absent has the value zero, which a closed enum may lack."""
    return bool(field.has_presence or field.is_repeated)


def check_strings(message: Message) -> None:
    """Raise InvalidSchema if a string is not text, which protobuf represents as bytes."""
    pending = [message]
    while pending:
        current = pending.pop()
        # The method of the class, as the message of a custom option may have a field of its name.
        for field, value in type(current).ListFields(current):
            is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
            if is_map:
                key, item = field.message_type.fields
                _check_text(key, value)
                field, value = item, value.values()
            if field.message_type is not None:
                pending += value if field.is_repeated or is_map else [value]
            else:
                _check_text(field, value if field.is_repeated or is_map else [value])


def _check_text(field: Message, values: Iterable[object]) -> None:
    if field.type == model.TYPE_STRING and any(isinstance(value, bytes) for value in values):
        raise InvalidSchema(f"{field.full_name} in the descriptor is not valid UTF-8")


def check_nesting(file: Message) -> None:
    """Raise InvalidSchema if messages are nested too deep for everything that walks over them."""
    level = list(file.message_type)
    for _ in range(limits.NESTING_MAX):
        level = [nested for message in level for nested in message.nested_type]
    if level:
        raise InvalidSchema(f"messages are nested more than {limits.NESTING_MAX} deep")


def check_imports(file: Message) -> None:
    """Raise InvalidSchema if a file imports too many others, one twice, or none by an index of its lists."""
    if len(file.dependency) > limits.FILES_MAX:
        raise InvalidSchema(f"there are more than {limits.FILES_MAX} imports")
    seen = set()
    for name in file.dependency:
        if name in seen:
            raise InvalidSchema(f'"{shortened(name)}" is imported twice')
        seen.add(name)
    for index in (*file.public_dependency, *file.weak_dependency):
        if not 0 <= index < len(file.dependency):
            raise InvalidSchema(f"there is no import with index {index}")


def _check_message(name: str, message: Message, syntax: str) -> None:
    ranges = [(each.start, each.end - 1, "reserved") for each in message.reserved_range]
    ranges += [(each.start, each.end - 1, "for extensions") for each in message.extension_range]
    is_set = message.options.message_set_wire_format
    largest = model.MESSAGE_SET_NUMBER_MAX if is_set else model.FIELD_NUMBER_MAX
    for start, last, _purpose in ranges:
        if not 1 <= start <= last <= largest:
            _fail(name, f"{start} to {last} is not a range of field numbers")
    if syntax == "proto3" and message.extension_range:
        _fail(name, "there are no extension ranges in proto3")
    _check_numbers(name, ranges, [(field.number, field.name) for field in message.field])
    _check_reserved_names(name, message.reserved_name, [field.name for field in message.field])
    _check_field_numbers(name, message)
    if syntax == "proto3" and not message.options.deprecated_legacy_json_field_conflicts:
        _check_json_names(name, message)
    _check_oneofs(name, message)
    _check_map_entries(name, message)


def _check_numbers(name: str, ranges: list[Range], numbers: Iterable[tuple[int, str]]) -> None:
    """No two ranges overlap, and none has a number in use. Takes the time of sorting them."""
    ranges.sort()
    for (start, last, purpose), (next_start, next_last, next_purpose) in pairwise(ranges):
        if next_start <= last:
            _fail(name, f"{start} to {last}, {purpose}, overlaps {next_start} to {next_last}, {next_purpose}")
    position = 0
    for number, used_by in sorted(numbers):
        while position < len(ranges) and ranges[position][1] < number:
            position += 1
        if position < len(ranges) and ranges[position][0] <= number:
            _fail(f"{name}.{used_by}", f"its number, {number}, is {ranges[position][2]}")


def _check_field_numbers(name: str, message: Message) -> None:
    used_by: dict[int, str] = {}
    for field in message.field:
        if not 1 <= field.number <= model.FIELD_NUMBER_MAX:
            _fail(f"{name}.{field.name}", f"{field.number} is not a field number")
        if used_by.setdefault(field.number, field.name) != field.name:
            _fail(f"{name}.{field.name}", f"its number, {field.number}, is that of {used_by[field.number]}")


def _check_json_names(name: str, message: Message) -> None:
    used_by: dict[str, str] = {}
    for field in message.field:
        json_name = field.json_name or model.json_name(field.name)
        if used_by.setdefault(json_name, field.name) != field.name:
            _fail(f"{name}.{field.name}", f"its name in JSON, {json_name}, is that of {used_by[json_name]}")


def _check_reserved_names(name: str, reserved: Sequence[str], used: Iterable[str]) -> None:
    names = set(reserved)
    if len(names) < len(reserved):
        _fail(name, "a name is reserved twice")
    for each in used:
        if each in names:
            _fail(f"{name}.{each}", "its name is reserved")


def _check_oneofs(name: str, message: Message) -> None:
    previous, seen = None, set()
    for field in message.field:
        index = field.oneof_index if field.HasField("oneof_index") else None
        if index is not None and index != previous and index in seen:
            _fail(f"{name}.{field.name}", "the fields of a oneof have to follow each other")
        if field.proto3_optional and (index is None or index in seen):
            _fail(f"{name}.{field.name}", "a field with optional has to be alone in its oneof")
        previous = index
        seen.add(index)
    for index, oneof in enumerate(message.oneof_decl):
        if index not in seen:
            _fail(f"{name}.{oneof.name}", "a oneof has to have a field")
    synthetic = [field.oneof_index for field in message.field if field.proto3_optional]
    if synthetic and sorted(synthetic) != list(
        range(len(message.oneof_decl) - len(synthetic), len(message.oneof_decl))
    ):
        _fail(name, "the oneofs of fields with optional have to come after all others")


def _check_map_entries(name: str, message: Message) -> None:
    entries = {f".{name}.{each.name}": each for each in message.nested_type if model.is_map_entry(each)}
    for field in message.field:
        entry = entries.pop(field.type_name, None)
        if entry is None:
            continue
        if not _is_map(field, entry):
            _fail(f"{name}.{field.name}", f"{entry.name} is not the entry of a map of this name")
        if entry.field[0].type not in _MAP_KEYS:
            _fail(f"{name}.{field.name}", "the key of a map is an integer, a string or a bool")
    for each in entries:
        _fail(each.removeprefix("."), "it is the entry of a map, but no field uses it")


def _is_map(field: Message, entry: Message) -> bool:
    parts = [(each.name, each.number, each.label) for each in entry.field]
    optional = model.LABEL_OPTIONAL
    return (
        field.label == model.LABEL_REPEATED
        and field.type == model.TYPE_MESSAGE
        and entry.name == model.map_entry_name(field.name)
        and parts == [("key", 1, optional), ("value", 2, optional)]
        and not (
            entry.nested_type
            or entry.enum_type
            or entry.oneof_decl
            or entry.extension_range
            or entry.extension
        )
    )


def _check_field(name: str, field: Message, syntax: str) -> None:
    if not field.HasField("type"):
        _fail(name, "it has no type")
    if field.type in _NAMED_TYPES and not field.type_name:
        _fail(name, "its type has no name")
    if field.number in _IMPLEMENTATION_NUMBERS:
        _fail(name, "the numbers 19000 to 19999 are for the implementation of protobuf")
    if field.proto3_optional and syntax != "proto3":
        _fail(name, "only a field of proto3 can be proto3_optional")
    if syntax == "proto3":
        _check_field_of_proto3(name, field)
    if field.HasField("json_name"):
        _check_json_name(name, field)
    if field.HasField("default_value"):
        _check_default(name, field)
    if field.HasField("options"):
        _check_field_options(name, field, syntax)


def _check_field_of_proto3(name: str, field: Message) -> None:
    if field.type == model.TYPE_GROUP:
        _fail(name, "there are no groups in proto3")
    if field.label == model.LABEL_REQUIRED:
        _fail(name, "no field is required in proto3")


def _check_field_options(name: str, field: Message, syntax: str) -> None:
    options = field.options
    if options.packed and (field.label != model.LABEL_REPEATED or field.type in _UNPACKABLE):
        _fail(name, "only repeated numbers can be packed")
    if syntax == "editions" and options.HasField("packed"):
        _fail(name, "there is no option packed in editions: use features.repeated_field_encoding")
    if (options.lazy or options.unverified_lazy) and field.type != model.TYPE_MESSAGE:
        _fail(name, "only a message can be lazy")
    if options.jstype and field.type not in _LONG_INTEGERS:
        _fail(name, "only integers of 64 bits have a jstype")


def _check_json_name(name: str, field: Message) -> None:
    if field.HasField("extendee") and field.json_name != model.json_name(field.name):
        _fail(name, "an extension has no json_name")
    if field.json_name.startswith("[") and field.json_name.endswith("]"):
        _fail(name, "a json_name in brackets is for extensions")
    if "\0" in field.json_name:
        _fail(name, "its json_name has a NUL")


def _check_default(name: str, field: Message) -> None:
    if field.label == model.LABEL_REPEATED:
        _fail(name, "a repeated field has no default")
    if field.type in (model.TYPE_MESSAGE, model.TYPE_GROUP):
        _fail(name, "a message has no default")


def _check_extension(name: str, extension: Message, syntax: str) -> None:
    if not extension.extendee:
        _fail(name, "it does not name the message that it extends")
    if syntax == "proto3" and extension.extendee not in _OPTIONS:
        _fail(name, "in proto3, only options can be extended")
    if extension.label == model.LABEL_REQUIRED:
        _fail(name, "an extension cannot be required")
    if extension.HasField("oneof_index"):
        _fail(name, "an extension cannot be in a oneof")


def _check_enum(name: str, enum: Message, syntax: str) -> None:
    ranges = [(each.start, each.end, "reserved") for each in enum.reserved_range]
    for start, last, _purpose in ranges:
        if start > last:
            _fail(name, f"{start} to {last} is not a range")
    _check_numbers(name, ranges, [(value.number, value.name) for value in enum.value])
    _check_reserved_names(name, enum.reserved_name, [value.name for value in enum.value])
    if not enum.value:
        _fail(name, "an enum has to have a constant")
    if syntax == "proto3" and enum.value[0].number != 0:
        _fail(name, "the first constant of an enum of proto3 is zero")
    has_aliases = len({value.number for value in enum.value}) < len(enum.value)
    if has_aliases and not enum.options.allow_alias:
        _fail(name, "two constants have the same number, which needs option allow_alias")
    if enum.options.allow_alias and not has_aliases:
        _fail(name, "it has option allow_alias, but no aliases")
    if syntax == "proto3" and not enum.options.deprecated_legacy_json_field_conflicts:
        _check_constants_in_json(name, enum)


def _check_constants_in_json(name: str, enum: Message) -> None:
    """Generated code shortens constants: FOO_BAR of enum Foo and BAR would get the same name."""
    prefix = enum.name.replace("_", "").lower()
    shortened: dict[str, Message] = {}
    for value in enum.value:
        other = shortened.setdefault(_shortened(value.name, prefix), value)
        if other.name != value.name and other.number != value.number:
            _fail(name, f"{other.name} and {value.name} differ in letter case or the name of the enum only")


def _shortened(constant: str, prefix: str) -> str:
    """`constant` in camel case, without the name of its enum."""
    matched, position = 0, 0
    while position < len(constant) and matched < len(prefix):
        if constant[position] != "_":
            if constant[position].lower() != prefix[matched]:
                break
            matched += 1
        position += 1
    rest = constant[position:].lstrip("_")
    kept = rest if matched == len(prefix) and rest else constant
    return "".join(part[:1].upper() + part[1:].lower() for part in kept.split("_"))


def _fail(name: str, reason: str) -> NoReturn:
    raise InvalidSchema(f"{name}: {reason}")
