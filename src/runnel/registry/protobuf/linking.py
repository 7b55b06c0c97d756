"""A text and its imports, linked."""

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from runnel.registry.format import InvalidSchema, ReferencedSchema
from runnel.registry.protobuf import limits, model, options, parser, well_known
from runnel.registry.protobuf.checks import check, check_imports, check_linked, check_nesting, check_strings
from runnel.registry.protobuf.elements import Elements
from runnel.registry.protobuf.literals import shortened
from runnel.registry.protobuf.model import Message
from runnel.registry.protobuf.names import resolve_names
from runnel.registry.protobuf.symbols import Symbol, Symbols, declared

SCHEMA_FILE = "(schema)"
"""The name of the file that a schema is, which has none."""

_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}", re.ASCII)


@dataclass(frozen=True, slots=True)
class LinkedFile:
    """A file with the pool that has it and all files it needs."""

    file: Message
    """With all imports that it declares, those without a text included."""
    missing: tuple[str, ...]
    pool: DescriptorPool
    needed: tuple[bytes, ...]
    """The files it needs, serialized, in an order in which they can be linked."""


def is_descriptor(text: str) -> bool:
    """Whether a text is base64 rather than source, which has blanks, braces or semicolons."""
    return _BASE64.fullmatch(text.strip()) is not None


def parse_file(text: str, name: str) -> Message:
    """The FileDescriptorProto of a text of either kind, not linked."""
    if len(text) > limits.TEXT_BYTES_MAX or len(text.encode("utf-8", "replace")) > limits.TEXT_BYTES_MAX:
        raise InvalidSchema(f"the text has more than {limits.TEXT_BYTES_MAX} bytes")
    if not text.strip():
        raise InvalidSchema("the text is empty")
    file = _decoded(text.strip()) if is_descriptor(text) else parser.parse(text)
    file.name = name
    check_nesting(file)
    check_imports(file)
    return file


def link(text: str, references: Sequence[ReferencedSchema]) -> LinkedFile:
    """Parse and link a text. Raises InvalidSchema."""
    return _Linker(_texts(references)).link(text)


def link_again(files: Sequence[bytes]) -> DescriptorPool:
    """A pool of files that were linked before."""
    pool = DescriptorPool()
    for each in files:
        pool.AddSerializedFile(each)
    return pool


def linkable(file: Message, missing: Sequence[str]) -> Message:
    """A copy of `file` without imports that have no text, and without the options that depend on them."""
    copy = type(file)()
    copy.CopyFrom(file)
    if missing:
        without_text = set(missing)
        public = {file.dependency[index] for index in file.public_dependency}
        weak = {file.dependency[index] for index in file.weak_dependency}
        copy.dependency[:] = [name for name in file.dependency if name not in without_text]
        copy.public_dependency[:] = [index for index, name in enumerate(copy.dependency) if name in public]
        copy.weak_dependency[:] = [index for index, name in enumerate(copy.dependency) if name in weak]
        for _scope, element in Elements(copy).with_options():
            element.options.ClearField("uninterpreted_option")
    return copy


def for_linker(file: Message, missing: Sequence[str]) -> bytes:
    """What the linker of protobuf gets of a file.

    protoc only warns of fields of proto2 that have the same name in JSON. The linker needs an option for it.
    """
    copy = linkable(file, missing)
    if not copy.syntax:
        for _name, message in Elements(copy).messages:
            names = [
                model.json_name(field.name) for field in message.field if not field.HasField("json_name")
            ]
            if len(set(names)) < len(names):
                message.options.deprecated_legacy_json_field_conflicts = True
    serialized: bytes = copy.SerializeToString(deterministic=True)
    return serialized


def _texts(references: Sequence[ReferencedSchema]) -> dict[str, str]:
    if len(references) > limits.FILES_MAX:
        raise InvalidSchema(f"there are more than {limits.FILES_MAX} references")
    texts: dict[str, str] = {}
    for reference in references:
        if texts.setdefault(reference.name, reference.text) != reference.text:
            raise InvalidSchema(f'there are two references "{reference.name}" with different schemas')
    if sum(map(len, texts.values())) > limits.REFERENCED_BYTES_MAX:
        raise InvalidSchema(f"the references have more than {limits.REFERENCED_BYTES_MAX} bytes")
    return texts


def _decoded(text: str) -> Message:
    try:
        file = model.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, DecodeError) as error:
        raise InvalidSchema(
            "the text is neither .proto source nor base64 of a FileDescriptorProto"
        ) from error
    check_strings(file)
    for _scope, element in Elements(file).with_options():
        _check_uninterpreted(element.options)
    if file.syntax == "editions" and file.edition not in parser.EDITIONS.values():
        raise InvalidSchema("only proto2, proto3 and edition 2023 are supported")
    return file


def _check_uninterpreted(element_options: Message) -> None:
    """Check options that a descriptor has uninterpreted, as the parser does with those of source."""
    for option in element_options.uninterpreted_option:
        if not 1 <= len(option.name) <= limits.NESTING_MAX:
            raise InvalidSchema(f"the name of an option has {len(option.name)} parts")
        if option.HasField("aggregate_value"):
            option.aggregate_value = parser.parse_aggregate(option.aggregate_value)


@dataclass(frozen=True, slots=True)
class _WellKnown:
    """A file that needs no reference, checked once for all schemas."""

    file: Message
    declared: tuple[tuple[str, Symbol], ...]
    serialized: bytes


class _Linker:
    """Links a schema and what it imports into one pool."""

    def __init__(self, texts: dict[str, str]) -> None:
        self._texts = texts
        self._pool = DescriptorPool()
        self._symbols = Symbols()
        self._needed: list[bytes] = []
        self._linked: set[str] = set()

    def link(self, text: str) -> LinkedFile:
        main = parse_file(text, SCHEMA_FILE)
        # Options are read with the descriptors of this file, whether or not it is imported.
        self._add_well_known(_well_known(model.DESCRIPTOR_PROTO))
        self._add_imports(main)
        elements = Elements(main)
        missing = self._add(elements)
        options.interpret_custom(elements, self._pool, self._symbols, is_lenient=bool(missing))
        check_linked(self._pool.FindFileByName(SCHEMA_FILE))
        return LinkedFile(main, tuple(missing), self._pool, tuple(self._needed))

    def _add_imports(self, main: Message) -> None:
        """Link what a file imports, each file after those that it imports itself."""
        path = [(main, iter(main.dependency))]
        on_path = {main.name}
        while path:
            file, imports = path[-1]
            name = next(imports, None)
            if name is None:
                path.pop()
                on_path.remove(file.name)
                if path:
                    self._add_reference(file)
            elif name in on_path:
                raise InvalidSchema(f'"{shortened(name)}" imports itself, directly or by what it imports')
            elif name not in self._linked and (imported := self._imported(name)) is not None:
                path.append((imported, iter(imported.dependency)))
                on_path.add(name)

    def _imported(self, name: str) -> Message | None:
        """The file of an import, not linked, or None if there is no text for it."""
        if self._has_text(name):
            try:
                return parse_file(self._texts[name], name)
            except InvalidSchema as error:
                raise InvalidSchema(f'reference "{name}": {error}') from error
        if name in well_known.DESCRIPTORS or name in well_known.SOURCES:
            return _well_known(name).file
        return None

    def _has_text(self, name: str) -> bool:
        return name in self._texts and name not in well_known.DESCRIPTORS

    def _add_reference(self, file: Message) -> None:
        if not self._has_text(file.name):
            self._add_well_known(_well_known(file.name))
            return
        try:
            self._add(Elements(file))
        except InvalidSchema as error:
            raise InvalidSchema(f'reference "{file.name}": {error}') from error

    def _add_well_known(self, known: _WellKnown) -> None:
        self._symbols.add(known.file, known.declared)
        self._add_to_pool(known.file.name, known.serialized)

    def _add(self, elements: Elements) -> list[str]:
        """Check a file whose imports are linked, and link it. The imports without a text."""
        file = elements.file
        missing = [name for name in file.dependency if name not in self._linked]
        self._symbols.add(file, declared(elements))
        resolve_names(elements, self._symbols, missing)
        options.interpret_standard(elements)
        check(elements)
        self._add_to_pool(file.name, for_linker(file, missing))
        return missing

    def _add_to_pool(self, name: str, serialized: bytes) -> None:
        try:
            self._pool.AddSerializedFile(serialized)
        except TypeError as error:
            reason = str(error).rpartition("descriptor pool: ")[2]
            raise InvalidSchema(f"protobuf cannot link it: {reason}") from error
        self._linked.add(name)
        if name != SCHEMA_FILE:
            self._needed.append(serialized)


@cache
def _well_known(name: str) -> _WellKnown:
    if name in well_known.DESCRIPTORS:
        serialized = well_known.DESCRIPTORS[name]
        file = model.FileDescriptorProto.FromString(serialized)
    else:
        file = link(well_known.SOURCES[name], ()).file
        file.name = name
        serialized = file.SerializeToString()
    return _WellKnown(file, tuple(declared(Elements(file))), serialized)
