"""Message declarations: one class for all versions; each field declares its versions.

    class FetchPartition(Struct):
        partition: int32 = 0
        current_leader_epoch: int32 = field("9+", default=-1)

    class FetchRequest(Request, api=1, versions="4-18", flexible="12+"):
        topics: list[FetchTopic] = field()

A plain value is the default of a field that every version has. `X | None` may be null on the wire: in all
versions of the field, or in those that `nullable` names. A tagged struct that is `X | None` is None when it
was left out; its fields then have their defaults.
"""

import sys
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Union, dataclass_transform, get_args, get_origin

from runnel.wire.primitives import RECORDS, ArrayOf, Blob, Fixed, StructOf, Text, WireType

LAST_VERSION = 32767


class _Unset:
    """Marks a missing value, since None is a value."""

    def __repr__(self) -> str:
        return "<default>"


UNSET: Any = _Unset()


@dataclass(frozen=True, slots=True)
class Span:
    """A range of versions, both ends inclusive."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> "Span":
        """Parse Kafka's notation: "3", "3-7", "3+", "none"."""
        if text == "none":
            return NEVER
        if text.endswith("+"):
            return cls(int(text[:-1]), LAST_VERSION)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def covers(self, version: int) -> bool:
        return self.first <= version <= self.last


NEVER = Span(1, 0)


@dataclass(frozen=True, slots=True)
class _Declared:
    """The declaration of a field."""

    versions: str = "0+"
    default: object = UNSET
    tag: int | None = None
    nullable: str | None = None


def field(
    versions: str = "0+", *, default: Any = UNSET, tag: int | None = None, nullable: str | None = None
) -> Any:
    """Declare the versions of a field, its default, its tag, and its nullable versions."""
    return _Declared(versions, default, tag, nullable)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct, resolved."""

    name: str
    type: WireType
    versions: Span
    nullable: Span
    tag: int | None
    default: object
    """UNSET if the default is a new list or a new struct."""


def _first_init(self: "Struct", *values: Any, **named: Any) -> None:
    """Replace this by the real constructor, which is compiled on first use."""
    init = _compile_init(type(self))
    type(self).__init__ = init  # type: ignore[method-assign]
    init(self, *values, **named)


@dataclass_transform()
class StructType(type):
    """Turns a declaration into a slotted class; expensive work is deferred to first use."""

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        api: int | None = None,
        versions: str = "none",
        flexible: str = "none",
    ) -> "StructType":
        names = [
            key for key, value in namespace.get("__annotations__", {}).items() if "ClassVar" not in str(value)
        ]
        missing = [key for key in names if key not in namespace]
        if missing:
            raise TypeError(f"{name}: give {', '.join(missing)} a default value or field()")
        namespace["_declared"] = {key: namespace.pop(key) for key in names}
        namespace["_fields"] = None
        namespace["_encoders"] = {}
        namespace["_decoders"] = {}
        namespace["__init__"] = _first_init
        namespace["__slots__"] = tuple(names)
        namespace["__match_args__"] = tuple(names)
        if versions != "none":
            span = Span.parse(versions)
            namespace["api_key"] = api
            namespace["versions"] = range(span.first, span.last + 1)
            namespace["flexible_from"] = None if flexible == "none" else Span.parse(flexible).first
        return super().__new__(mcs, name, bases, namespace)


class Struct(metaclass=StructType):
    """A group of fields. Equal when all fields are equal."""

    _declared: ClassVar[dict[str, object]]
    _fields: ClassVar[tuple[Field, ...] | None]
    _encoders: ClassVar[dict[int, Any]]
    _decoders: ClassVar[dict[int, Any]]
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self._declared)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._declared)
        return f"{type(self).__name__}({shown})"


class Message(Struct):
    """A top-level struct with versions, some of which may be flexible (KIP-482)."""

    api_key: ClassVar[int]
    versions: ClassVar[range]
    flexible_from: ClassVar[int | None]


class Request(Message):
    """A request."""


class Response(Message):
    """A response."""


class Data(Message):
    """A message that is neither request nor response: stored in a log, or embedded in bytes of a message."""


def fields_of(struct: type[Struct]) -> tuple[Field, ...]:
    """The resolved fields of a struct, in wire order."""
    fields = struct._fields
    if fields is None:
        scope = sys.modules[struct.__module__].__dict__
        fields = struct._fields = tuple(
            _resolve(struct, name, annotation, scope)
            for name, annotation in struct.__annotations__.items()
            if name in struct._declared
        )
    return fields


def is_flexible(message: type[Message], version: int) -> bool:
    """True if this version uses compact lengths and tagged fields."""
    return message.flexible_from is not None and version >= message.flexible_from


def _resolve(struct: type[Struct], name: str, annotation: Any, scope: dict[str, Any]) -> Field:
    # Annotations are trusted source text, evaluated lazily to keep imports cheap.
    hint = eval(annotation, scope) if isinstance(annotation, str) else annotation
    wire_type, may_be_none = _wire_type(hint)
    declared = struct._declared[name]
    if not isinstance(declared, _Declared):
        declared = _Declared(default=declared)
    versions = Span.parse(declared.versions)
    left_out = isinstance(wire_type, StructOf) and declared.tag is not None
    if declared.nullable is not None:
        nullable = Span.parse(declared.nullable)
    else:
        nullable = versions if may_be_none and not left_out else NEVER
    default = declared.default
    if default is UNSET:
        if isinstance(wire_type, (Fixed, Text, Blob)):
            default = b"" if wire_type is RECORDS and not may_be_none else wire_type.zero
        elif left_out and may_be_none:
            default = None
    return Field(name, wire_type, versions, nullable, declared.tag, default)


def _wire_type(hint: Any) -> tuple[WireType, bool]:
    """Split an annotation into its wire type and whether it is nullable."""
    if get_origin(hint) in (Union, UnionType):
        (inner,) = [part for part in get_args(hint) if part is not NoneType]
        return _wire_type(inner)[0], True
    if get_origin(hint) is Annotated:
        wire_type: WireType = hint.__metadata__[0]
        return wire_type, False
    if get_origin(hint) is list:
        return ArrayOf(_wire_type(get_args(hint)[0])[0]), False
    if isinstance(hint, StructType):
        return StructOf(hint), False
    raise TypeError(f"{hint!r} is not a wire type")


def _compile_init(struct: type[Struct]) -> Any:
    """A constructor with one positional-or-keyword parameter per field."""
    scope: dict[str, Any] = {"UNSET": UNSET}
    parameters, lines = [], []
    for index, field_ in enumerate(fields_of(struct)):
        name = field_.name
        scope[f"default_{index}"] = field_.default
        parameters.append(f"{name}=default_{index}")
        if field_.default is not UNSET:
            lines.append(f"    self.{name} = {name}")
            continue
        fresh = "[]"
        if isinstance(field_.type, StructOf):
            fresh = f"struct_{index}()"
            scope[f"struct_{index}"] = field_.type.struct
        lines.append(f"    self.{name} = {fresh} if {name} is UNSET else {name}")
    source = f"def __init__({', '.join(['self', *parameters])}):\n" + "\n".join(lines or ["    pass"])
    exec(source, scope)
    return scope["__init__"]
