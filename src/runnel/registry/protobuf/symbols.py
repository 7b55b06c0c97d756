"""The names that files declare, and their resolution by protobuf's scoping rules."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from runnel.registry.format import InvalidSchema
from runnel.registry.protobuf import limits
from runnel.registry.protobuf.model import Message


class Kind(Enum):
    """What a name stands for, and how messages call it."""

    PACKAGE = "a package"
    MESSAGE = "a message"
    ENUM = "an enum"
    SERVICE = "a service"
    EXTENSION = "an extension"
    FIELD = "a field"
    ONEOF = "a oneof"
    CONSTANT = "a constant of an enum"
    METHOD = "a method"


_SCOPES = (Kind.PACKAGE, Kind.MESSAGE, Kind.ENUM, Kind.SERVICE)
_TYPES = (Kind.MESSAGE, Kind.ENUM)


@dataclass(frozen=True, slots=True)
class Symbol:
    """A declared name: what it is, and in which file."""

    kind: Kind
    file: str


@dataclass(slots=True)
class Symbols:
    """All names that the files of one schema declare, by their full name."""

    _symbols: dict[str, Symbol] = field(default_factory=dict)
    _packages: dict[str, set[str]] = field(default_factory=dict)
    """For each file that uses it, the packages of the files that are visible in it."""
    _visible: dict[str, set[str]] = field(default_factory=dict)
    """For each file, those whose names it may use: itself, its imports, and what these import publicly."""
    _public: dict[str, set[str]] = field(default_factory=dict)
    """For each file, those whose names a file that imports it may use."""
    _package_of: dict[str, str] = field(default_factory=dict)

    def add(self, file: Message) -> None:
        """Add a file whose imports were added before."""
        name = file.name
        for full_name, kind in declared_names(file):
            if len(full_name) > limits.NAME_CHARACTERS_MAX:
                raise InvalidSchema(
                    f"the name {full_name[:60]}... has more than {limits.NAME_CHARACTERS_MAX} characters"
                )
            previous = self._symbols.get(full_name)
            if previous is None:
                self._symbols[full_name] = Symbol(kind, name)
            elif kind is not Kind.PACKAGE or previous.kind is not Kind.PACKAGE:
                raise InvalidSchema(_already_declared(full_name, previous, name))
        self._package_of[name] = file.package
        imported = [each for each in file.dependency if each in self._public]
        public = (file.dependency[index] for index in file.public_dependency)
        self._public[name] = {name}.union(*(self._public.get(each, ()) for each in public))
        self._visible[name] = {name}.union(*(self._public[each] for each in imported))
        packages = {self._package_of[each] for each in self._visible[name]}
        self._packages[name] = {prefix for package in packages for prefix in _prefixes(package)}

    def resolve(self, name: str, scope: str, file: str, *, types_only: bool = False) -> tuple[str, Kind] | None:
        """The full name and kind of what `name` means within `scope`, the full name of the element that uses it.

        The innermost scope that has the first part of the name decides, whether or not it has the others.
        """
        if name.startswith("."):
            found = self._find(name[1:], file)
            return (name[1:], found) if found else None
        first, dot, rest = name.partition(".")
        while scope:
            scope = scope.rpartition(".")[0]
            candidate = f"{scope}.{first}" if scope else first
            found = self._find(candidate, file)
            if found is None:
                continue
            if not dot:
                if types_only and found not in _TYPES:
                    continue
                return candidate, found
            if found in _SCOPES:
                full_name = f"{candidate}.{rest}"
                found = self._find(full_name, file)
                return (full_name, found) if found else None
        return None

    def file_of(self, full_name: str) -> str | None:
        """The file that declares a name, whether or not others may use it."""
        symbol = self._symbols.get(full_name.removeprefix("."))
        return symbol.file if symbol else None

    def _find(self, full_name: str, file: str) -> Kind | None:
        symbol = self._symbols.get(full_name)
        if symbol is None:
            return None
        if symbol.kind is Kind.PACKAGE:
            return Kind.PACKAGE if full_name in self._packages[file] else None
        return symbol.kind if symbol.file in self._visible[file] else None


def declared_names(file: Message) -> Iterator[tuple[str, Kind]]:
    """Everything that a file declares, and the packages that it is in."""
    for prefix in _prefixes(file.package):
        yield prefix, Kind.PACKAGE
    start = f"{file.package}." if file.package else ""
    yield from _names_of_messages(file.message_type, start)
    yield from _names_of_enums(file.enum_type, start)
    yield from ((start + each.name, Kind.EXTENSION) for each in file.extension)
    for service in file.service:
        yield start + service.name, Kind.SERVICE
        yield from ((f"{start}{service.name}.{method.name}", Kind.METHOD) for method in service.method)


def _names_of_messages(messages: Message, start: str) -> Iterator[tuple[str, Kind]]:
    pending = [(message, start) for message in reversed(messages)]
    count = 0
    while pending:
        message, start = pending.pop()
        count += 1 + len(message.enum_type)
        if count > limits.MESSAGES_MAX:
            raise InvalidSchema(f"there are more than {limits.MESSAGES_MAX} messages and enums")
        full_name = start + message.name
        yield full_name, Kind.MESSAGE
        inner = f"{full_name}."
        yield from ((inner + each.name, Kind.FIELD) for each in message.field)
        yield from ((inner + each.name, Kind.ONEOF) for each in message.oneof_decl)
        yield from ((inner + each.name, Kind.EXTENSION) for each in message.extension)
        yield from _names_of_enums(message.enum_type, inner)
        pending += [(nested, inner) for nested in reversed(message.nested_type)]


def _names_of_enums(enums: Message, start: str) -> Iterator[tuple[str, Kind]]:
    """Constants are siblings of their enum, not its children."""
    for enum in enums:
        yield start + enum.name, Kind.ENUM
        yield from ((start + value.name, Kind.CONSTANT) for value in enum.value)


def _prefixes(package: str) -> Iterator[str]:
    while package:
        yield package
        package = package.rpartition(".")[0]


def _already_declared(full_name: str, previous: Symbol, file: str) -> str:
    where = "" if previous.file == file else f' in "{previous.file}"'
    return f"{full_name} is declared twice: it is already {previous.kind.value}{where}"
