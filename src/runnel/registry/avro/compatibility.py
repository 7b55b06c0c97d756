"""Avro's schema resolution: whether data of a writer's schema can be read with a reader's.

Types refer to each other in cycles, so the question for a pair of types leads to questions for further pairs,
possibly back to the same one. A pair is compatible unless something says otherwise, that is: compatibility is
the greatest fixpoint. All pairs that can be reached are listed first, each with the pairs it depends on; then
"incompatible" spreads from those with a finding of their own to those that depend on them. A pair of a union
of the reader depends on any of its branches, every other one on all.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from runnel.registry.avro.limits import COMPARISONS_MAX, FINDINGS_MAX
from runnel.registry.avro.model import (
    BYTES,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    Array,
    Enum,
    Field,
    Fixed,
    Map,
    Named,
    Primitive,
    Record,
    Schema,
    Union,
)
from runnel.registry.format import Incompatibility, InvalidSchema

_PROMOTIONS = {
    LONG: (INT,),
    FLOAT: (INT, LONG),
    DOUBLE: (INT, LONG, FLOAT),
    BYTES: (STRING,),
    STRING: (BYTES,),
}

NAME_MISMATCH = "NAME_MISMATCH"
FIXED_SIZE_MISMATCH = "FIXED_SIZE_MISMATCH"
MISSING_ENUM_SYMBOLS = "MISSING_ENUM_SYMBOLS"
READER_FIELD_MISSING_DEFAULT_VALUE = "READER_FIELD_MISSING_DEFAULT_VALUE"
TYPE_MISMATCH = "TYPE_MISMATCH"
MISSING_UNION_BRANCH = "MISSING_UNION_BRANCH"

Key: TypeAlias = tuple[int, int]


@dataclass(slots=True, eq=False)
class _Pair:
    """A question: can this writer's type be read with this reader's?"""

    reader: Schema
    writer: Schema
    findings: list[Incompatibility] = field(default_factory=list)
    """Its own, with paths relative to the reader's type."""
    parts: "list[tuple[str, str, _Pair]]" = field(default_factory=list)
    """What it depends on: path relative to the reader's type, field, pair."""
    dependents: "list[_Pair]" = field(default_factory=list)
    is_incompatible: bool = False
    open_branches: int = 0
    """Of a reader's union: branches that may still be compatible."""

    @property
    def needs_any(self) -> bool:
        return isinstance(self.reader, Union) and not isinstance(self.writer, Union)


def incompatibilities(reader: Schema, writer: Schema) -> list[Incompatibility]:
    """Why data of the writer cannot be read; empty if all can."""
    root, pairs = _explored(reader, writer)
    _spread(pairs)
    return list(_findings(root))[:FINDINGS_MAX]


def _explored(reader: Schema, writer: Schema) -> tuple[_Pair, list[_Pair]]:
    """All pairs that the question leads to."""
    root = _Pair(reader, writer)
    by_key: dict[Key, _Pair] = {(id(reader), id(writer)): root}
    waiting = [root]
    branches = _Branches()
    pairs = []
    comparisons = 0
    while waiting:
        pair = waiting.pop()
        pairs.append(pair)
        pair.findings = list(_own_findings(pair.reader, pair.writer))
        if pair.findings and not isinstance(pair.reader, Record):
            continue
        for path, name, part_reader, part_writer in _parts(pair.reader, pair.writer, branches):
            comparisons += 1
            if comparisons > COMPARISONS_MAX:
                raise InvalidSchema("the schema is too complex to be compared with another version")
            key = id(part_reader), id(part_writer)
            part = by_key.get(key)
            if part is None:
                part = by_key[key] = _Pair(part_reader, part_writer)
                waiting.append(part)
            pair.parts.append((path, name, part))
            part.dependents.append(pair)
        pair.open_branches = len(pair.parts)
    return root, pairs


def _spread(pairs: list[_Pair]) -> None:
    waiting = [pair for pair in pairs if pair.findings or (pair.needs_any and not pair.parts)]
    for pair in waiting:
        pair.is_incompatible = True
    while waiting:
        for dependent in waiting.pop().dependents:
            dependent.open_branches -= 1
            if dependent.is_incompatible or (dependent.needs_any and dependent.open_branches):
                continue
            dependent.is_incompatible = True
            waiting.append(dependent)


def _findings(root: _Pair) -> Iterator[Incompatibility]:
    """The findings of all pairs that make the root incompatible, each once, nearest first."""
    waiting = deque([("", "", root)])
    seen = {id(root)}
    while waiting:
        path, name, pair = waiting.popleft()
        if not pair.is_incompatible:
            continue
        inner = pair.parts
        for finding in pair.findings:
            yield Incompatibility(
                finding.kind, (path + finding.path) or "/", _in_field(name, finding.message)
            )
        if pair.needs_any:
            yield Incompatibility(
                MISSING_UNION_BRANCH,
                path or "/",
                _in_field(
                    name, f"the reader's union has no branch for the writer's {_described(pair.writer)}"
                ),
            )
            # The branch that was meant explains why it does not fit.
            inner = [part for part in inner if _is_meant(part[2])]
        for part_path, part_name, part in inner:
            if id(part) not in seen:
                seen.add(id(part))
                waiting.append((path + part_path, part_name or name, part))


def _is_meant(pair: _Pair) -> bool:
    """Does a branch have the same type as the writer's, and the same name if that has one?"""
    reader, writer = pair.reader, pair.writer
    if isinstance(reader, Named) and isinstance(writer, Named):
        return reader.type == writer.type and _has_same_name(reader, writer)
    return reader.type == writer.type


def _in_field(name: str, message: str) -> str:
    return f"field {name}: {message}" if name else message


# One pair.


def _own_findings(reader: Schema, writer: Schema) -> Iterator[Incompatibility]:
    """The findings of a pair itself, without those of its parts."""
    if isinstance(writer, Union) or isinstance(reader, Union):
        return
    if isinstance(reader, Primitive) and isinstance(writer, Primitive):
        if reader.type != writer.type and writer.type not in _PROMOTIONS.get(reader.type, ()):
            yield _type_mismatch(reader, writer)
        return
    if type(reader) is not type(writer):
        yield _type_mismatch(reader, writer)
        return
    if isinstance(reader, Named) and isinstance(writer, Named) and not _has_same_name(reader, writer):
        yield Incompatibility(
            NAME_MISMATCH,
            "/name",
            f"the reader's {reader.type} is named {reader.full_name}, the writer's {writer.full_name}; "
            "an alias of the reader would make them match",
        )
    if isinstance(reader, Fixed) and isinstance(writer, Fixed) and reader.size != writer.size:
        yield Incompatibility(
            FIXED_SIZE_MISMATCH,
            "/size",
            f"{reader.full_name} has {reader.size} bytes for the reader, {writer.size} for the writer",
        )
    if isinstance(reader, Enum) and isinstance(writer, Enum):
        yield from _missing_symbols(reader, writer)
    if isinstance(reader, Record) and isinstance(writer, Record):
        yield from _missing_defaults(reader, writer)


def _type_mismatch(reader: Schema, writer: Schema) -> Incompatibility:
    message = f"the reader's type {_described(reader)} cannot read the writer's type {_described(writer)}"
    return Incompatibility(TYPE_MISMATCH, "", message)


def _missing_symbols(reader: Enum, writer: Enum) -> Iterator[Incompatibility]:
    known = set(reader.symbols)
    missing = [symbol for symbol in writer.symbols if symbol not in known]
    if missing and reader.default is None:
        shown = ", ".join(missing[:10]) + (", ..." if len(missing) > 10 else "")
        message = f"the reader's enum {reader.full_name} lacks {shown} and has no default"
        yield Incompatibility(MISSING_ENUM_SYMBOLS, "/symbols", message)


def _missing_defaults(reader: Record, writer: Record) -> Iterator[Incompatibility]:
    # An enum's own default is for unknown symbols; readers do not use it for a missing field.
    written = {one.name: one for one in writer.fields}
    for index, one in enumerate(reader.fields):
        if not one.has_default and _written_field(one, written) is None:
            message = (
                f"field {one.name} of {reader.full_name} is not written, and the reader has no default for it"
            )
            yield Incompatibility(READER_FIELD_MISSING_DEFAULT_VALUE, f"/fields/{index}", message)


class _Branches:
    """Which branches of unions may read a type, by kind and name; trying all would be quadratic."""

    def __init__(self) -> None:
        self._unions: dict[int, dict[tuple[str, str], list[int]]] = {}

    def possible(self, union: Union, writer: Schema) -> Iterable[int]:
        """The indexes of such branches, in order."""
        index = self._unions.get(id(union))
        if index is None:
            index = self._unions[id(union)] = {}
            for number, branch in enumerate(union.branches):
                for key in _branch_keys(branch):
                    index.setdefault(key, []).append(number)
        keys = [(writer.type, "")]
        if isinstance(writer, Named):
            keys = [(writer.type, writer.name), (writer.type, f"alias {writer.full_name}")]
        return sorted({number for key in keys for number in index.get(key, ())})


def _branch_keys(branch: Schema) -> Iterator[tuple[str, str]]:
    if isinstance(branch, Named):
        yield branch.type, branch.name
        for alias in branch.aliases:
            yield branch.type, f"alias {alias}"
    else:
        for kind in (branch.type, *_PROMOTIONS.get(branch.type, ())):
            yield kind, ""


def _parts(reader: Schema, writer: Schema, branches: _Branches) -> Iterator[tuple[str, str, Schema, Schema]]:
    """The pairs that a pair depends on, with their paths in the reader and names of fields."""
    if isinstance(writer, Union):
        for branch in writer.branches:
            yield "", "", reader, branch
    elif isinstance(reader, Union):
        for index in branches.possible(reader, writer):
            yield f"/{index}", "", reader.branches[index], writer
    elif isinstance(reader, Array) and isinstance(writer, Array):
        yield "/items", "", reader.items, writer.items
    elif isinstance(reader, Map) and isinstance(writer, Map):
        yield "/values", "", reader.values, writer.values
    elif isinstance(reader, Record) and isinstance(writer, Record):
        written = {one.name: one for one in writer.fields}
        for index, one in enumerate(reader.fields):
            found = _written_field(one, written)
            if found is not None:
                yield f"/fields/{index}/type", one.name, one.schema, found.schema


def _written_field(one: Field, written: dict[str, Field]) -> Field | None:
    """The writer's field of a name, or else of an alias."""
    return next((written[name] for name in (one.name, *one.aliases) if name in written), None)


def _has_same_name(reader: Named, writer: Named) -> bool:
    """Names compare unqualified, as in Java's library; aliases are full names."""
    return reader.name == writer.name or writer.full_name in reader.aliases


def _described(schema: Schema) -> str:
    return f"{schema.type} {schema.full_name}" if isinstance(schema, Named) else schema.type
