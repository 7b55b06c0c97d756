"""The names that files declare, and their resolution by protobuf's scoping rules."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NoReturn

from runnel.registry.format import InvalidSchema
from runnel.registry.protobuf import limits
from runnel.registry.protobuf.elements import Elements, check_length, full_name
from runnel.registry.protobuf.model import Message


class Kind(Enum):
    """The kind of a name, and what messages call it."""

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


@dataclass(slots=True)
class Symbol:
    """A declared name: what it is, and in which file."""

    kind: Kind
    file: str


_PACKAGE = Symbol(Kind.PACKAGE, "")
"""A package may be that of many files."""


@dataclass(slots=True)
class Symbols:
    """All names that the files of one schema declare, by their full name."""

    _symbols: dict[str, Symbol] = field(default_factory=dict)
    _in_package: dict[str, set[str]] = field(default_factory=dict)
    """For each package, the files that are in it or in one below it."""
    _visible: dict[str, set[str]] = field(default_factory=dict)
    """For each file, those whose names it may use: itself, its imports, and what these import publicly."""
    _public: dict[str, set[str]] = field(default_factory=dict)
    """For each file, those whose names a file that imports it may use."""

    def add(self, file: Message, declared: Iterable[tuple[str, Symbol]]) -> None:
        """Add a file, with the names that it declares, whose imports were added before."""
        name = file.name
        for each, symbol in declared:
            if self._symbols.setdefault(each, symbol) is not symbol:
                self._fail_twice(each, name)
        for package in _prefixes(file.package):
            if self._symbols.setdefault(package, _PACKAGE) is not _PACKAGE:
                self._fail_twice(package, name)
            self._in_package.setdefault(package, set()).add(name)
        imported = [each for each in file.dependency if each in self._public]
        public = (file.dependency[index] for index in file.public_dependency)
        self._public[name] = {name}.union(*(self._public.get(each, ()) for each in public))
        self._visible[name] = {name}.union(*(self._public[each] for each in imported))

    def _fail_twice(self, full_name: str, file: str) -> NoReturn:
        previous = self._symbols[full_name]
        where = f' in "{previous.file}"' if previous.file not in ("", file) else ""
        raise InvalidSchema(f"{full_name} is declared twice: it is already {previous.kind.value}{where}")

    def resolve(
        self, name: str, scope: str, file: str, *, types_only: bool = False
    ) -> tuple[str, Kind] | None:
        """The full name and kind that `name` resolves to in `scope`, the full name of what uses it.

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
            return None if self._in_package[full_name].isdisjoint(self._visible[file]) else Kind.PACKAGE
        return symbol.kind if symbol.file in self._visible[file] else None


def declared(elements: Elements) -> Iterator[tuple[str, Symbol]]:
    """Everything that a file declares. Raises InvalidSchema if that is too much."""
    if len(elements.messages) + len(elements.enums) > limits.MESSAGES_MAX:
        raise InvalidSchema(f"there are more than {limits.MESSAGES_MAX} messages and enums")
    for name, kind in _names(elements):
        check_length(name)
        yield name, Symbol(kind, elements.file.name)


def _names(elements: Elements) -> Iterator[tuple[str, Kind]]:
    """Full names. Constants are siblings of their enum, not its children."""
    yield from ((name, Kind.MESSAGE) for name, _ in elements.messages)
    yield from ((name, Kind.FIELD) for name, _ in elements.fields)
    yield from ((name, Kind.ONEOF) for name, _ in elements.oneofs)
    yield from ((name, Kind.ENUM) for name, _ in elements.enums)
    for name, enum in elements.enums:
        scope = name.rpartition(".")[0]
        yield from ((full_name(scope, value.name), Kind.CONSTANT) for value in enum.value)
    yield from ((name, Kind.EXTENSION) for name, _ in elements.extensions)
    yield from ((name, Kind.SERVICE) for name, _ in elements.services)
    yield from ((name, Kind.METHOD) for name, _ in elements.methods)


def _prefixes(package: str) -> Iterator[str]:
    while package:
        yield package
        package = package.rpartition(".")[0]
