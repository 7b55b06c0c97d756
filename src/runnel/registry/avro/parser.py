"""Avro's JSON to its model."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from runnel.registry.avro.defaults import DefaultCheck
from runnel.registry.avro.limits import DEPTH_MAX, NAME_CHARACTERS_MAX, NODES_MAX, TEXT_CHARACTERS_MAX
from runnel.registry.avro.model import (
    MISSING,
    PRIMITIVES,
    Array,
    Enum,
    Field,
    Fixed,
    Map,
    NamedSchema,
    Primitive,
    Record,
    Schema,
    Union,
    branch_name,
)
from runnel.registry.format import InvalidSchema

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_NAMED = ("type", "name", "namespace", "aliases", "doc")
_ATTRIBUTES = {
    "record": frozenset((*_NAMED, "fields")),
    "error": frozenset((*_NAMED, "fields")),
    "enum": frozenset((*_NAMED, "symbols", "default")),
    "fixed": frozenset((*_NAMED, "size")),
    "array": frozenset(("type", "items")),
    "map": frozenset(("type", "values")),
    "field": frozenset(("type", "name", "doc", "default", "order", "aliases")),
}
_ORDERS = ("ascending", "descending", "ignore")
_FIXED_BYTES_MAX = 2**31 - 1
TOO_DEEP = f"the schema is nested deeper than {DEPTH_MAX} levels"


class Parser:
    """Parses one schema; named types of the schemas it refers to are known to it beforehand."""

    def __init__(self, *, is_strict: bool) -> None:
        """Strict parsing checks names, symbols and defaults; stored texts may break those rules."""
        self.names: dict[str, NamedSchema] = {}
        self._is_strict = is_strict
        self._nodes = 0
        self._defaults = DefaultCheck()

    def parse(self, text: str) -> Schema:
        """The schema of a text. Raises InvalidSchema."""
        if len(text) > TEXT_CHARACTERS_MAX:
            raise InvalidSchema(f"the schema has more than {TEXT_CHARACTERS_MAX} characters")
        try:
            value = json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=_no_constant)
        except RecursionError:
            raise InvalidSchema(TOO_DEEP) from None
        except ValueError as error:
            raise InvalidSchema(f"the schema is not JSON: {error}") from None
        if _is_too_deep(value):
            raise InvalidSchema(TOO_DEEP)
        return self._schema(value, "", "")

    def _schema(self, value: Any, namespace: str, path: str) -> Schema:
        self._count(1)
        match value:
            case str():
                return self._named_or_primitive(value, namespace, path)
            case list():
                return self._union(value, namespace, path)
            case dict():
                return self._object(value, namespace, path)
        raise InvalidSchema(f"{_where(path)}: a type is a name, an object or an array, not {_shown(value)}")

    def _count(self, more: int) -> None:
        self._nodes += more
        if self._nodes > NODES_MAX:
            raise InvalidSchema(f"the schema has more than {NODES_MAX} types and fields")

    def _named_or_primitive(self, name: str, namespace: str, path: str) -> Schema:
        if name in PRIMITIVES:
            return Primitive(name)
        full_name = name if "." in name or not namespace else f"{namespace}.{name}"
        # As Java does: a name without namespace may also be one of the null namespace.
        found = self.names.get(full_name.removeprefix(".")) or self.names.get(name)
        if found is None:
            raise InvalidSchema(f"{_where(path)}: the type {_shown(name)} is not defined")
        return found

    def _union(self, values: list[Any], namespace: str, path: str) -> Union:
        branches: list[Schema] = []
        seen: set[str] = set()
        for index, value in enumerate(values):
            branch = self._schema(value, namespace, f"{path}/{index}")
            if isinstance(branch, Union):
                raise InvalidSchema(f"{_where(path)}: a union cannot contain a union")
            key = branch_name(branch)
            if key in seen:
                raise InvalidSchema(f"{_where(path)}: {_shown(key)} occurs twice in a union")
            seen.add(key)
            branches.append(branch)
        return Union(branches)

    def _object(self, value: dict[str, Any], namespace: str, path: str) -> Schema:
        kind = value.get("type", MISSING)
        if kind is MISSING:
            raise InvalidSchema(f"{_where(path)}: the type is missing")
        if not isinstance(kind, str):
            return self._schema(kind, namespace, f"{path}/type")
        if kind in PRIMITIVES:
            return Primitive(kind, {name: given for name, given in value.items() if name != "type"})
        properties = {name: given for name, given in value.items() if name not in _ATTRIBUTES.get(kind, ())}
        match kind:
            case "array":
                items = self._part(value, "items", namespace, path)
                return Array(items, properties)
            case "map":
                values = self._part(value, "values", namespace, path)
                return Map(values, properties)
            case "record" | "error":
                return self._record(kind, value, properties, namespace, path)
            case "enum":
                return self._enum(value, properties, namespace, path)
            case "fixed":
                return self._fixed(value, properties, namespace, path)
        return self._named_or_primitive(kind, namespace, path)

    def _part(self, value: dict[str, Any], part: str, namespace: str, path: str) -> Schema:
        if part not in value:
            raise InvalidSchema(f"{_where(path)}: {part} of the {value['type']} is missing")
        return self._schema(value[part], namespace, f"{path}/{part}")

    def _record(
        self,
        kind: str,
        value: dict[str, Any],
        properties: dict[str, Any],
        namespace: str,
        path: str,
    ) -> Record:
        record = Record(*self._name(value, namespace, path), properties=properties, type=kind)
        self._define(record, value, path)
        fields = value.get("fields")
        if not isinstance(fields, list):
            raise InvalidSchema(f"{_where(path)}: the record {record.full_name} has no list of fields")
        seen: set[str] = set()
        for index, given in enumerate(fields):
            one = self._field(given, record, f"{path}/fields/{index}")
            if one.name in seen:
                raise InvalidSchema(f"{_where(path)}: {record.full_name} has two fields {_shown(one.name)}")
            seen.add(one.name)
            record.fields.append(one)
        return record

    def _field(self, value: Any, record: Record, path: str) -> Field:
        if not isinstance(value, dict):
            raise InvalidSchema(f"{_where(path)}: a field is an object, not {_shown(value)}")
        name = value.get("name")
        if not isinstance(name, str):
            raise InvalidSchema(f"{_where(path)}: the name of the field is missing")
        self._check_name(name, path)
        if "type" not in value:
            raise InvalidSchema(f"{_where(path)}: the type of field {_shown(name)} is missing")
        order = value.get("order", "ascending")
        if not isinstance(order, str) or order.lower() not in _ORDERS:
            raise InvalidSchema(f"{_where(path)}: the order {_shown(order)} does not exist")
        schema = self._schema(value["type"], record.namespace, f"{path}/type")
        default = value.get("default", MISSING)
        if (
            default is not MISSING
            and self._is_strict
            and (problem := self._defaults.problem(schema, default))
        ):
            raise InvalidSchema(f"{_where(path)}: the default of field {_shown(name)} {problem}")
        return Field(
            name,
            schema,
            default,
            order.lower(),
            self._aliases(value, path),
            _doc(value),
            {key: given for key, given in value.items() if key not in _ATTRIBUTES["field"]},
        )

    def _enum(self, value: dict[str, Any], properties: dict[str, Any], namespace: str, path: str) -> Enum:
        enum = Enum(*self._name(value, namespace, path), properties=properties)
        enum.symbols = _texts(value.get("symbols"), "symbols", path)
        for symbol in enum.symbols:
            self._check_name(symbol, path)
        if len(set(enum.symbols)) < len(enum.symbols):
            raise InvalidSchema(f"{_where(path)}: {enum.full_name} has a symbol twice")
        default = value.get("default")
        if default is not None and default not in enum.symbols:
            raise InvalidSchema(f"{_where(path)}: the default {_shown(default)} is not a symbol of the enum")
        enum.default = default
        self._define(enum, value, path)
        return enum

    def _fixed(self, value: dict[str, Any], properties: dict[str, Any], namespace: str, path: str) -> Fixed:
        fixed = Fixed(*self._name(value, namespace, path), properties=properties)
        size = value.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= _FIXED_BYTES_MAX:
            raise InvalidSchema(
                f"{_where(path)}: the size {_shown(size)} of {fixed.full_name} is not possible"
            )
        fixed.size = size
        self._define(fixed, value, path)
        return fixed

    def _name(self, value: dict[str, Any], namespace: str, path: str) -> tuple[str, str]:
        """The name and namespace of a definition within a namespace."""
        name, own = value.get("name"), value.get("namespace")
        if not isinstance(name, str) or not name:
            raise InvalidSchema(f"{_where(path)}: the name of the {value['type']} is missing")
        if own is not None and not isinstance(own, str):
            raise InvalidSchema(f"{_where(path)}: the namespace {_shown(own)} is not a text")
        qualifier, dot, last = name.rpartition(".")
        space = qualifier if dot else (namespace if own is None else own)
        if len(space) + len(last) > NAME_CHARACTERS_MAX:
            raise InvalidSchema(f"{_where(path)}: a name has at most {NAME_CHARACTERS_MAX} characters")
        for part in (*(space.split(".") if space else ()), last):
            self._check_name(part, path)
        return last, space

    def _define(self, named: NamedSchema, value: dict[str, Any], path: str) -> None:
        """A type may be used from here on, within itself too."""
        full_name = named.full_name
        if full_name in self.names or (not named.namespace and named.name in PRIMITIVES):
            raise InvalidSchema(f"{_where(path)}: the type {_shown(full_name)} is defined already")
        aliases = self._aliases(value, path)
        space = named.namespace
        named.aliases = [alias if "." in alias or not space else f"{space}.{alias}" for alias in aliases]
        named.doc = _doc(value)
        self.names[full_name] = named

    def _aliases(self, value: Mapping[str, Any], path: str) -> list[str]:
        aliases = _texts(value.get("aliases", []), "aliases", path)
        self._count(len(aliases))
        return aliases

    def _check_name(self, name: str, path: str) -> None:
        if self._is_strict and not _NAME.match(name):
            raise InvalidSchema(
                f"{_where(path)}: {_shown(name)} is not a name: letters, digits and _, not a digit first"
            )


def _texts(value: Any, what: str, path: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise InvalidSchema(f"{_where(path)}: {what} is a list of texts, not {_shown(value)}")
    return value


def _doc(value: Mapping[str, Any]) -> str | None:
    doc = value.get("doc")
    return doc if isinstance(doc, str) else None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{_shown(name)} occurs twice in an object")
        found[name] = value
    return found


def _is_too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(DEPTH_MAX):
        level = [inner for outer in level for inner in _inner(outer)]
    return bool(level)


def _inner(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a number of JSON")


def _where(path: str) -> str:
    return f"at {path}" if path else "the schema"


def _shown(value: Any) -> str:
    """A value in a message, shortened."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
