"""The canonical form of equivalent descriptors, and its normalized order."""

from collections.abc import Callable, Sequence
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from runnel.registry.format import InvalidSchema
from runnel.registry.protobuf import layout, model
from runnel.registry.protobuf.elements import Elements
from runnel.registry.protobuf.literals import bytes_literal, bytes_value, float_literal
from runnel.registry.protobuf.model import Message


def canonical(file: Message, pool: DescriptorPool) -> Message:
    """A copy without what may differ between equal files. Options that `pool` does not know are dropped."""
    descriptor = pool.FindMessageTypeByName("google.protobuf.FileDescriptorProto")
    try:
        copy = message_factory.GetMessageClass(descriptor).FromString(file.SerializeToString())
    except DecodeError as error:
        raise InvalidSchema(f"a custom option is not what its declaration says: {error}") from error
    copy.DiscardUnknownFields()
    copy.ClearField("name")
    copy.ClearField("source_code_info")
    if copy.syntax == "proto2":
        copy.ClearField("syntax")
    elements = Elements(copy)
    _set_as_protoc_does(elements)
    for _scope, element in elements.with_options():
        if not element.options.features.ByteSize():
            element.options.ClearField("features")
        if not element.options.ByteSize():
            element.ClearField("options")
    for name, field in elements.all_fields():
        if field.json_name == model.json_name(field.name):
            field.ClearField("json_name")
        if field.HasField("default_value"):
            field.default_value = _canonical_default(name, field)
    _arrange(elements)
    return copy


def _set_as_protoc_does(elements: Elements) -> None:
    """Clear fields of a descriptor that have their default, or set them, whichever protoc does."""
    _clear_if_default(elements.file, "package", "syntax")
    for _name, each in elements.all_fields():
        _clear_if_default(each, "type_name", "extendee", "proto3_optional")
        each.label = each.label
    for _name, method in elements.methods:
        _clear_if_default(method, "client_streaming", "server_streaming")
    for _name, value in elements.values:
        value.number = value.number
    for _name, enum in elements.enums:
        for reserved in enum.reserved_range:
            reserved.start, reserved.end = reserved.start, reserved.end


def _clear_if_default(message: Message, *names: str) -> None:
    for name in names:
        if not getattr(message, name):
            message.ClearField(name)


def _arrange(elements: Elements) -> None:
    """Put nested messages in the order in which a parser would find them."""
    # Inner messages first: those of a message that is replaced are replaced with it.
    for name, message in reversed(elements.messages):
        _replace(message.nested_type, layout.in_declared_order(layout.message_layout(message, name)))
    file = elements.file
    _replace(file.message_type, layout.in_declared_order(layout.file_layout(file)))


def normalized(file: Message) -> Message:
    """A copy in the order of Confluent's normalization: fields and constants by number, imports by name.

    Messages stay where they are, as records name them by their index.
    """
    copy = type(file)()
    copy.CopyFrom(file)
    _sort_imports(copy)
    elements = Elements(copy)
    for _name, message in elements.messages:
        _sort_fields(message)
        _sort(message.reserved_range, lambda each: each.start)
        _sort(message.extension_range, lambda each: each.start)
        _sort(message.extension, lambda each: (each.extendee, each.number))
        message.reserved_name[:] = sorted(message.reserved_name)
    for _name, enum in elements.enums:
        _sort_constants(enum)
        _sort(enum.reserved_range, lambda each: each.start)
        enum.reserved_name[:] = sorted(enum.reserved_name)
    _sort(copy.extension, lambda each: (each.extendee, each.number))
    _arrange(elements)
    return copy


def _sort_imports(file: Message) -> None:
    public = {file.dependency[index] for index in file.public_dependency}
    weak = {file.dependency[index] for index in file.weak_dependency}
    file.dependency[:] = sorted(file.dependency, key=lambda name: (name in public, name))
    file.public_dependency[:] = [index for index, name in enumerate(file.dependency) if name in public]
    file.weak_dependency[:] = [index for index, name in enumerate(file.dependency) if name in weak]


def _sort_fields(message: Message) -> None:
    """Fields by number, then the fields of oneofs, in the order of the smallest number of each."""
    first_number: dict[int, int] = {}
    is_synthetic: dict[int, bool] = {}
    for field in message.field:
        if field.HasField("oneof_index"):
            index = field.oneof_index
            first_number[index] = min(first_number.get(index, field.number), field.number)
            is_synthetic[index] = field.proto3_optional
    order = sorted(first_number, key=lambda index: (is_synthetic[index], first_number[index]))
    new_index = {index: position for position, index in enumerate(order)}
    _replace(message.oneof_decl, [message.oneof_decl[index] for index in order])
    for field in message.field:
        if field.HasField("oneof_index"):
            field.oneof_index = new_index[field.oneof_index]

    def key(field: Message) -> tuple[int, int]:
        is_member = field.HasField("oneof_index") and not field.proto3_optional
        return (field.oneof_index + 1 if is_member else 0, field.number)

    _sort(message.field, key)


def _sort_constants(enum: Message) -> None:
    """By number and name. The first constant stays, as it is the default of fields without one."""
    first, *others = enum.value
    _replace(enum.value, [first, *sorted(others, key=lambda value: (value.number, value.name))])


def _sort(repeated: Message, key: Callable[[Message], Any]) -> None:
    _replace(repeated, sorted(repeated, key=key))


def _replace(repeated: Message, order: Sequence[Message]) -> None:
    """Put the elements of a repeated field into another order."""
    if all(present is each for present, each in zip(repeated, order, strict=True)):
        return
    copies = []
    for each in order:
        copy = type(each)()
        copy.CopyFrom(each)
        copies.append(copy)
    del repeated[:]
    repeated.extend(copies)


def _canonical_default(name: str, field: Message) -> str:
    default: str = field.default_value
    try:
        if field.type in (model.TYPE_FLOAT, model.TYPE_DOUBLE):
            return float_literal(float(default), is_double=field.type == model.TYPE_DOUBLE)
        if field.type == model.TYPE_BYTES:
            return bytes_literal(bytes_value(default))
        if field.type in model.INTEGER_BITS:
            return str(int(default))
    except ValueError as error:
        raise InvalidSchema(f"{name}: {default[:60]!r} is not a value of its type") from error
    return default
