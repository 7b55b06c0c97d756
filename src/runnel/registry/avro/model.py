"""Avro schemas as objects. Named types refer to each other, so a schema may be a graph with cycles."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

NULL, BOOLEAN, INT, LONG = "null", "boolean", "int", "long"
FLOAT, DOUBLE, BYTES, STRING = "float", "double", "bytes", "string"
PRIMITIVES = frozenset((NULL, BOOLEAN, INT, LONG, FLOAT, DOUBLE, BYTES, STRING))

Properties: TypeAlias = Mapping[str, Any]
"""Attributes that Avro does not define, and logical types, in the order in which they were given."""


class Missing:
    """The type of MISSING."""


MISSING = Missing()
"""The default of a field that has none: None is the default `null`."""


@dataclass(slots=True, eq=False)
class Primitive:
    """A type without parts."""

    type: str
    properties: Properties = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Array:
    """A list of items."""

    items: "Schema"
    properties: Properties = field(default_factory=dict)
    type = "array"


@dataclass(slots=True, eq=False)
class Map:
    """Values by text."""

    values: "Schema"
    properties: Properties = field(default_factory=dict)
    type = "map"


@dataclass(slots=True, eq=False)
class Union:
    """One of several branches."""

    branches: "Sequence[Schema]"
    type = "union"


@dataclass(slots=True, eq=False)
class Named:
    """What has a name: a record, an enum or a fixed."""

    name: str
    """Unqualified."""
    namespace: str
    aliases: Sequence[str] = ()
    """Full names."""
    doc: str | None = None
    properties: Properties = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        return f"{self.namespace}.{self.name}" if self.namespace else self.name


@dataclass(slots=True, eq=False)
class Field:
    """A field of a record."""

    name: str
    schema: "Schema"
    default: Any = MISSING
    order: str = "ascending"
    aliases: Sequence[str] = ()
    doc: str | None = None
    properties: Properties = field(default_factory=dict)

    @property
    def has_default(self) -> bool:
        return self.default is not MISSING


@dataclass(slots=True, eq=False)
class Record(Named):
    """Fields in order."""

    fields: list[Field] = field(default_factory=list)
    type: str = "record"
    """`error` in protocols."""


@dataclass(slots=True, eq=False)
class Enum(Named):
    """One of several symbols."""

    symbols: Sequence[str] = ()
    default: str | None = None
    type: str = "enum"


@dataclass(slots=True, eq=False)
class Fixed(Named):
    """A fixed number of bytes."""

    size: int = 0
    type: str = "fixed"


NamedSchema: TypeAlias = Record | Enum | Fixed
Schema: TypeAlias = Primitive | Array | Map | Union | Record | Enum | Fixed


def branch_name(branch: Schema) -> str:
    """The name of a union's branch in Avro's JSON encoding."""
    return branch.full_name if isinstance(branch, Named) else branch.type
