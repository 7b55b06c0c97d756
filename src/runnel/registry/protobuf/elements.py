"""A walk over the elements of a file, with the full name of each."""

from collections.abc import Iterator

from runnel.registry.protobuf.model import Message


def full_name(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


def messages(file: Message) -> Iterator[tuple[str, Message]]:
    """All messages, nested ones after the one they are in."""
    pending = [(file.package, message) for message in reversed(file.message_type)]
    while pending:
        scope, message = pending.pop()
        name = full_name(scope, message.name)
        yield name, message
        pending += [(name, nested) for nested in reversed(message.nested_type)]


def enums(file: Message) -> Iterator[tuple[str, Message]]:
    """All enums."""
    yield from ((full_name(file.package, enum.name), enum) for enum in file.enum_type)
    for scope, message in messages(file):
        yield from ((f"{scope}.{enum.name}", enum) for enum in message.enum_type)


def extensions(file: Message) -> Iterator[tuple[str, Message]]:
    """All fields that extend a message."""
    yield from ((full_name(file.package, each.name), each) for each in file.extension)
    for scope, message in messages(file):
        yield from ((f"{scope}.{each.name}", each) for each in message.extension)


def fields(file: Message) -> Iterator[tuple[str, Message]]:
    """All fields, those that extend a message included."""
    for scope, message in messages(file):
        yield from ((f"{scope}.{each.name}", each) for each in message.field)
    yield from extensions(file)


def methods(file: Message) -> Iterator[tuple[str, Message]]:
    """All methods of services."""
    for service in file.service:
        name = full_name(file.package, service.name)
        yield from ((f"{name}.{method.name}", method) for method in service.method)


def with_options(file: Message) -> Iterator[tuple[str, Message]]:
    """All elements that have options, with the scope in which the names of these are resolved."""
    candidates = _optionable(file)
    yield from ((scope, element) for scope, element in candidates if element.HasField("options"))


def _optionable(file: Message) -> Iterator[tuple[str, Message]]:
    yield full_name(file.package, "(file)"), file
    for scope, message in messages(file):
        yield scope, message
        yield from ((f"{scope}.{each.name}", each) for each in message.oneof_decl)
        yield from ((scope, each) for each in message.extension_range)
    yield from fields(file)
    for scope, enum in enums(file):
        yield scope, enum
        yield from ((f"{scope}.{value.name}", value) for value in enum.value)
    yield from ((full_name(file.package, service.name), service) for service in file.service)
    yield from methods(file)
