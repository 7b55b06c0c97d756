"""A canonical FileDescriptorProto as `.proto` source."""

from collections.abc import Iterable, Iterator, Sequence

from google.protobuf import text_format
from google.protobuf.descriptor_pool import DescriptorPool

from runnel.registry.format import InvalidSchema
from runnel.registry.protobuf import layout, model
from runnel.registry.protobuf.elements import full_name
from runnel.registry.protobuf.layout import Fields
from runnel.registry.protobuf.literals import bytes_literal, string_literal
from runnel.registry.protobuf.model import Message

_INDENT = "  "
_LABELS = {
    model.LABEL_OPTIONAL: "optional ",
    model.LABEL_REQUIRED: "required ",
    model.LABEL_REPEATED: "repeated ",
}


def print_file(file: Message, pool: DescriptorPool, *, keeps_map_entries: bool = False) -> str:
    """The source of a file. Types have their full names, with a dot before them.

    With `keeps_map_entries`, the message that a map implies is printed as such if other messages follow it.
    Message indexes of records count it, but Confluent's Java clients only if they find it in the source.
    """
    return _Printer(file, pool, keeps_map_entries).source()


class _Printer:
    def __init__(self, file: Message, pool: DescriptorPool, keeps_map_entries: bool) -> None:
        self._file = file
        self._pool = pool
        self._keeps_map_entries = keeps_map_entries
        self._lines: list[str] = []
        self._depth = 0

    def source(self) -> str:
        file = self._file
        if file.syntax == "editions":
            edition = file.DESCRIPTOR.fields_by_name["edition"].enum_type.values_by_number[file.edition].name
            self._line(f'edition = "{edition.removeprefix("EDITION_")}";')
        else:
            self._line(f'syntax = "{file.syntax or "proto2"}";')
        if file.package:
            self._line(f"package {file.package};")
        for index, name in enumerate(file.dependency):
            is_public, is_weak = index in file.public_dependency, index in file.weak_dependency
            kind = "public " if is_public else "weak " if is_weak else ""
            self._line(f"import {kind}{string_literal(name)};")
        self._options(file)
        for part in layout.file_layout(file):
            self._line("")
            if isinstance(part, Fields):
                self._extend(part)
            else:
                self._message(part, full_name(file.package, part.name))
        for enum in file.enum_type:
            self._line("")
            self._enum(enum)
        for service in file.service:
            self._line("")
            self._service(service)
        return "\n".join(self._lines) + "\n"

    def _line(self, text: str) -> None:
        self._lines.append(f"{_INDENT * self._depth}{text}" if text else "")

    def _open(self, text: str) -> None:
        self._line(f"{text} {{")
        self._depth += 1

    def _close(self) -> None:
        self._depth -= 1
        self._line("}")

    def _options(self, element: Message) -> None:
        for text in self._option_texts(element):
            self._line(f"option {text};")

    def _message(self, message: Message, name: str) -> None:
        self._open(f"message {message.name}")
        self._message_body(message, name)
        self._close()

    def _message_body(self, message: Message, name: str) -> None:
        self._options(message)
        is_set = message.options.message_set_wire_format
        largest = model.MESSAGE_SET_NUMBER_MAX if is_set else model.FIELD_NUMBER_MAX
        self._reserved(
            [_range(each.start, each.end - 1, largest) for each in message.reserved_range],
            message.reserved_name,
        )
        for each in message.extension_range:
            options = self._bracketed(self._option_texts(each))
            self._line(f"extensions {_range(each.start, each.end - 1, largest)}{options};")
        parts = layout.message_layout(message, name)
        keeps_entries = self._keeps_map_entries and _has_message_after_entry(parts)
        for part in parts:
            if not isinstance(part, Fields):
                self._message(part, f"{name}.{part.name}")
            elif part.fields[0].extendee:
                self._extend(part)
            else:
                self._fields(message, part, name, keeps_entries)
        for enum in message.enum_type:
            self._enum(enum)

    def _fields(self, message: Message, part: Fields, scope: str, keeps_entries: bool) -> None:
        first = part.fields[0]
        if not first.HasField("oneof_index") or first.proto3_optional:
            entry = part.implied[0] if part.implied else None
            if entry is not None and keeps_entries and model.is_map_entry(entry):
                self._message(entry, f"{scope}.{entry.name}")
                entry = None
            self._field(first, entry, self._label(first))
            return
        oneof = message.oneof_decl[first.oneof_index]
        self._open(f"oneof {oneof.name}")
        self._options(oneof)
        self._members(part, has_labels=False)
        self._close()

    def _extend(self, part: Fields) -> None:
        self._open(f"extend {part.fields[0].extendee}")
        self._members(part, has_labels=True)
        self._close()

    def _members(self, part: Fields, *, has_labels: bool) -> None:
        groups = {message.name.lower(): message for message in part.implied}
        for field in part.fields:
            group = groups.get(field.name) if field.type == model.TYPE_GROUP else None
            self._field(field, group, self._label(field) if has_labels else "")

    def _label(self, field: Message) -> str:
        if self._file.syntax and field.label == model.LABEL_OPTIONAL and not field.proto3_optional:
            return ""
        if self._file.syntax == "editions" and field.label == model.LABEL_REQUIRED:
            return ""
        return _LABELS[field.label]

    def _field(self, field: Message, implied: Message | None, label: str) -> None:
        """A field; `implied` is the message of its group or map."""
        options = self._bracketed(self._field_option_texts(field))
        if implied is None:
            self._line(f"{label}{_type(field)} {field.name} = {field.number}{options};")
        elif model.is_map_entry(implied):
            key, value = implied.field
            self._line(f"map<{_type(key)}, {_type(value)}> {field.name} = {field.number}{options};")
        else:
            self._open(f"{label}group {implied.name} = {field.number}{options}")
            self._message_body(implied, field.type_name.removeprefix("."))
            self._close()

    def _field_option_texts(self, field: Message) -> Iterator[str]:
        if field.HasField("default_value"):
            default = field.default_value
            if field.type == model.TYPE_STRING:
                default = string_literal(default)
            elif field.type == model.TYPE_BYTES:
                default = f'"{default}"'
            yield f"default = {default}"
        if field.HasField("json_name"):
            yield f"json_name = {string_literal(field.json_name)}"
        yield from self._option_texts(field)

    def _reserved(self, ranges: Sequence[str], names: Sequence[str]) -> None:
        if ranges:
            self._line(f"reserved {', '.join(ranges)};")
        if names:
            is_quoted = self._file.syntax != "editions"
            listed = ", ".join(string_literal(name) if is_quoted else name for name in names)
            self._line(f"reserved {listed};")

    def _enum(self, enum: Message) -> None:
        self._open(f"enum {enum.name}")
        self._options(enum)
        ranges = [_range(each.start, each.end, model.INT32_MAX) for each in enum.reserved_range]
        self._reserved(ranges, enum.reserved_name)
        for value in enum.value:
            self._line(f"{value.name} = {value.number}{self._bracketed(self._option_texts(value))};")
        self._close()

    def _service(self, service: Message) -> None:
        self._open(f"service {service.name}")
        self._options(service)
        for method in service.method:
            request = "stream " * method.client_streaming + method.input_type
            response = "stream " * method.server_streaming + method.output_type
            text = f"rpc {method.name} ({request}) returns ({response})"
            if method.HasField("options"):
                self._open(text)
                self._options(method)
                self._close()
            else:
                self._line(f"{text};")
        self._close()

    def _bracketed(self, texts: Iterable[str]) -> str:
        joined = ", ".join(texts)
        return f" [{joined}]" if joined else ""

    def _option_texts(self, element: Message) -> Iterator[str]:
        """The options of an element, each as its name and value."""
        if element.HasField("options"):
            yield from self._assignments(element.options, "")

    def _assignments(self, options: Message, prefix: str) -> Iterator[str]:
        for field, value in options.ListFields():
            name = prefix + (f"(.{field.full_name})" if field.is_extension else field.name)
            if field.name == "uninterpreted_option":
                yield from map(_uninterpreted, value)
            elif field.name == "features" and not field.is_extension:
                yield from self._assignments(value, f"{name}.")
            else:
                for each in value if field.is_repeated else [value]:
                    yield f"{name} = {self._value(field, each)}"

    def _value(self, field: Message, value: Message) -> str:
        if field.message_type is not None:
            return self._aggregate(field, value)
        if field.type == model.TYPE_STRING:
            return string_literal(value)
        if field.type == model.TYPE_BYTES:
            return f'"{bytes_literal(value)}"'
        if field.type == model.TYPE_ENUM:
            constant = field.enum_type.values_by_number.get(value)
            return constant.name if constant else str(value)
        if field.type == model.TYPE_BOOL:
            return "true" if value else "false"
        return repr(value)

    def _aggregate(self, field: Message, value: Message) -> str:
        try:
            text = text_format.MessageToString(
                value, as_utf8=True, as_one_line=True, descriptor_pool=self._pool
            )
        except (AttributeError, TypeError, ValueError) as error:
            # Fields with names of attributes of messages in Python, and messages within google.protobuf.Any.
            raise InvalidSchema(f"option {field.full_name}: its value cannot be printed: {error}") from error
        return f"{{ {text} }}"


def _type(field: Message) -> str:
    return model.SCALAR_NAMES.get(field.type) or field.type_name


def _range(start: int, last: int, largest: int) -> str:
    if start == last:
        return str(start)
    return f"{start} to {'max' if last == largest else last}"


def _has_message_after_entry(parts: Sequence[layout.Part]) -> bool:
    order = [model.is_map_entry(message) for message in layout.in_declared_order(parts)]
    return True in order and False in order[order.index(True) :]


def _uninterpreted(option: Message) -> str:
    name = ".".join(f"({part.name_part})" if part.is_extension else part.name_part for part in option.name)
    if option.HasField("aggregate_value"):
        return f"{name} = {{ {option.aggregate_value} }}"
    if option.HasField("string_value"):
        return f'{name} = "{bytes_literal(option.string_value)}"'
    for kind in ("identifier_value", "positive_int_value", "negative_int_value", "double_value"):
        if option.HasField(kind):
            return f"{name} = {getattr(option, kind)}"
    return f"{name} = {{ }}"
