"""The names of types that a file uses, replaced by full names."""

from collections.abc import Sequence

from runnel.registry.format import InvalidSchema
from runnel.registry.protobuf import model
from runnel.registry.protobuf.elements import Elements
from runnel.registry.protobuf.literals import shortened
from runnel.registry.protobuf.model import Message
from runnel.registry.protobuf.symbols import Kind, Symbols

_TYPES = {Kind.MESSAGE: model.TYPE_MESSAGE, Kind.ENUM: model.TYPE_ENUM}


def resolve_names(elements: Elements, symbols: Symbols, missing: Sequence[str]) -> None:
    """Replace the names of types in a file that is in `symbols`. `missing` are imports without a text."""
    names = _Names(elements.file, symbols, missing)
    for scope, field in elements.all_fields():
        if field.HasField("extendee"):
            field.extendee = names.message(field.extendee, scope, "the message that it extends")
        if field.HasField("type_name"):
            names.resolve_type(field, scope)
    for scope, method in elements.methods:
        method.input_type = names.message(method.input_type, scope, "its request")
        method.output_type = names.message(method.output_type, scope, "its response")


class _Names:
    def __init__(self, file: Message, symbols: Symbols, missing: Sequence[str]) -> None:
        self._file = file
        self._symbols = symbols
        self._missing = missing

    def message(self, name: str, scope: str, what: str) -> str:
        """The full name of a message, with a dot before it."""
        full_name, kind = self._resolve(name, scope, types_only=False)
        if kind is not Kind.MESSAGE:
            raise InvalidSchema(f"{scope}: {what}, {full_name}, is not a message but {kind.value}")
        return f".{full_name}"

    def resolve_type(self, field: Message, scope: str) -> None:
        full_name, kind = self._resolve(field.type_name, scope, types_only=True)
        if kind not in _TYPES:
            raise InvalidSchema(f"{scope}: its type, {full_name}, is not a message or enum but {kind.value}")
        expected = _TYPES[kind]
        if not field.HasField("type"):
            field.type = expected
        elif field.type != expected and (field.type, kind) != (model.TYPE_GROUP, Kind.MESSAGE):
            raise InvalidSchema(
                f"{scope}: its type, {full_name}, is {kind.value}, which the descriptor denies"
            )
        field.type_name = f".{full_name}"

    def _resolve(self, name: str, scope: str, *, types_only: bool) -> tuple[str, Kind]:
        found = self._symbols.resolve(name, scope, self._file.name, types_only=types_only)
        if found is None:
            raise InvalidSchema(f'{scope}: "{shortened(name)}" is not declared{self._hint(name)}')
        return found

    def _hint(self, name: str) -> str:
        declared_in = self._symbols.file_of(name)
        if declared_in and declared_in != self._file.name:
            return f': "{shortened(declared_in)}" declares it, but is not imported'
        if self._missing:
            listed = ", ".join(f'"{shortened(each)}"' for each in self._missing[:5])
            return f"; the schema has no references for its imports {listed}"
        return ""
