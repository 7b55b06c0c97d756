"""Avro's model as JSON: as Java's library prints it, normalized, or with all references resolved."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from runnel.registry.avro.model import (
    Array,
    Enum,
    Field,
    Fixed,
    Map,
    Named,
    NamedSchema,
    Primitive,
    Record,
    Schema,
    Union,
)


def printed(schema: Schema, known: Collection[str] = ()) -> str:
    """The text as Java's library prints it; types of other schemas, which are known, by name only."""
    return _dumped(_Printer(set(known)).value(schema, ""))


def normalized(schema: Schema, known: Collection[str] = ()) -> str:
    """A text that is the same for all texts that mean the same: full names, properties sorted.

    Unlike Avro's Parsing Canonical Form, it keeps documentation, aliases, defaults, logical types and others.
    """
    return _dumped(_Normalizer(set(known)).value(schema, ""))


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@dataclass(slots=True)
class _Printer:
    defined: set[str] = field(default_factory=set)
    """Full names that were printed, or that other schemas define."""

    def value(self, schema: Schema, namespace: str) -> Any:
        """The JSON value of a type within a namespace."""
        match schema:
            case Primitive():
                return (
                    {"type": schema.type, **self.properties(schema.properties)}
                    if schema.properties
                    else schema.type
                )
            case Array():
                items = self.value(schema.items, namespace)
                return {"type": "array", "items": items, **self.properties(schema.properties)}
            case Map():
                values = self.value(schema.values, namespace)
                return {"type": "map", "values": values, **self.properties(schema.properties)}
            case Union():
                return [self.value(branch, namespace) for branch in schema.branches]
        if schema.full_name in self.defined:
            return self.reference(schema, namespace)
        self.defined.add(schema.full_name)
        return self.definition(schema, namespace)

    def properties(self, given: Mapping[str, Any]) -> dict[str, Any]:
        return dict(given)

    def reference(self, schema: Named, namespace: str) -> str:
        # A name without namespace is not one of the enclosing namespace.
        return schema.name if schema.namespace == namespace else schema.full_name

    def definition(self, schema: NamedSchema, namespace: str) -> dict[str, Any]:
        shown: dict[str, Any] = {"type": schema.type, "name": schema.name}
        if schema.namespace != namespace:
            shown["namespace"] = schema.namespace
        if schema.doc is not None:
            shown["doc"] = schema.doc
        shown |= self.own_attributes(schema)
        shown |= self.properties(schema.properties)
        if schema.aliases:
            shown["aliases"] = [_within(alias, schema.namespace) for alias in schema.aliases]
        return shown

    def own_attributes(self, schema: NamedSchema) -> dict[str, Any]:
        match schema:
            case Record():
                return {"fields": [self.field(one, schema.namespace) for one in schema.fields]}
            case Enum():
                default = {} if schema.default is None else {"default": schema.default}
                return {"symbols": list(schema.symbols), **default}
            case Fixed():
                return {"size": schema.size}

    def field(self, one: Field, namespace: str) -> dict[str, Any]:
        shown = {"name": one.name, "type": self.value(one.schema, namespace)}
        if one.doc is not None:
            shown["doc"] = one.doc
        if one.has_default:
            shown["default"] = self.default(one.default)
        if one.order != "ascending":
            shown["order"] = one.order
        if one.aliases:
            shown["aliases"] = self.field_aliases(one)
        return shown | self.properties(one.properties)

    def default(self, value: Any) -> Any:
        return value

    def field_aliases(self, one: Field) -> list[str]:
        return list(one.aliases)


class _Normalizer(_Printer):
    __slots__ = ()

    def properties(self, given: Mapping[str, Any]) -> dict[str, Any]:
        return {name: _sorted(given[name]) for name in sorted(given)}

    def reference(self, schema: Named, namespace: str) -> str:
        return schema.full_name

    def definition(self, schema: NamedSchema, namespace: str) -> dict[str, Any]:
        shown: dict[str, Any] = {"name": schema.full_name, "type": schema.type}
        if schema.doc:
            shown["doc"] = schema.doc
        shown |= self.own_attributes(schema)
        if schema.aliases:
            shown["aliases"] = sorted(set(schema.aliases))
        return shown | self.properties(schema.properties)

    def default(self, value: Any) -> Any:
        return _sorted(value)

    def field_aliases(self, one: Field) -> list[str]:
        return sorted(set(one.aliases))


def _sorted(value: Any) -> Any:
    match value:
        case dict():
            return {name: _sorted(value[name]) for name in sorted(value)}
        case list():
            return [_sorted(item) for item in value]
    return value


def _within(full_name: str, namespace: str) -> str:
    space, _, name = full_name.rpartition(".")
    return name if space == namespace else full_name
