"""Whether the default of a field is a value of its type."""

import math
from collections.abc import Iterable
from typing import Any

from runnel.registry.avro.limits import DEFAULT_CHECKS_MAX
from runnel.registry.avro.model import (
    BOOLEAN,
    BYTES,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    NULL,
    STRING,
    Array,
    Enum,
    Fixed,
    Map,
    Primitive,
    Record,
    Schema,
    Union,
)
from runnel.registry.format import InvalidSchema

_RANGES = {INT: (-(2**31), 2**31 - 1), LONG: (-(2**63), 2**63 - 1)}


class DefaultCheck:
    """Checks the defaults of a schema's fields.

    A union's default may be of any branch (Avro 1.12), not only of the first. Branches are tried, so that
    types meet the same part of the default repeatedly: each pair is decided once.
    """

    def __init__(self) -> None:
        self._left = DEFAULT_CHECKS_MAX
        self._decided: dict[tuple[int, int], str | None] = {}
        self._symbols: dict[int, frozenset[str]] = {}

    def problem(self, schema: Schema, value: Any) -> str | None:
        """Why a value of JSON is not one of the type, in words that follow "the default"; None if it is.

        Raises InvalidSchema if all defaults together are too complex.
        """
        # Records that are not complete yet may be so for the next field.
        self._decided.clear()
        return self._decision(schema, value)

    def _decision(self, schema: Schema, value: Any) -> str | None:
        key = id(schema), id(value)
        if key not in self._decided:
            self._left -= 1
            if self._left < 0:
                raise InvalidSchema("the defaults of the schema are too complex to be checked")
            # Types that refer to themselves without end have no finite value; each step takes a part of it.
            self._decided[key] = self._problem(schema, value)
        return self._decided[key]

    def _symbols_of(self, enum: Enum) -> frozenset[str]:
        found = self._symbols.get(id(enum))
        if found is None:
            found = self._symbols[id(enum)] = frozenset(enum.symbols)
        return found

    def _problem(self, schema: Schema, value: Any) -> str | None:
        match schema:
            case Primitive():
                return _primitive_problem(schema.type, value)
            case Union():
                fits = any(self._decision(branch, value) is None for branch in schema.branches)
                return None if fits else "is of none of the union's types"
            case Enum():
                fits = isinstance(value, str) and value in self._symbols_of(schema)
                return None if fits else "is not a symbol of the enum"
            case Fixed():
                fits = isinstance(value, str) and len(value) == schema.size and _is_latin(value)
                return None if fits else f"is not a text of {schema.size} characters up to \\u00ff"
            case Array():
                return self._first(schema.items, value) if isinstance(value, list) else "is not an array"
            case Map():
                is_object = isinstance(value, dict)
                return self._first(schema.values, value.values()) if is_object else "is not an object"
            case Record():
                return self._record_problem(schema, value)

    def _first(self, schema: Schema, values: Iterable[Any]) -> str | None:
        return next((problem for value in values if (problem := self._decision(schema, value))), None)

    def _record_problem(self, record: Record, value: Any) -> str | None:
        if not isinstance(value, dict):
            return "is not an object"
        for field in record.fields:
            if field.name in value:
                if problem := self._decision(field.schema, value[field.name]):
                    return f"has a field {field.name} that {problem}"
            elif not field.has_default:
                return f"lacks the field {field.name}"
        return None


def _primitive_problem(kind: str, value: Any) -> str | None:
    if kind in _RANGES:
        low, high = _RANGES[kind]
        # 1.0 is an integer as Java reads it.
        is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        fits = is_whole and not isinstance(value, bool) and low <= value <= high
    elif kind in (FLOAT, DOUBLE):
        fits = isinstance(value, int | float) and not isinstance(value, bool) and _is_finite(value)
    elif kind == BYTES:
        fits = isinstance(value, str) and _is_latin(value)
    else:
        fits = isinstance(value, {NULL: type(None), BOOLEAN: bool, STRING: str}[kind])
    return None if fits else f"is not of type {kind}"


def _is_latin(text: str) -> bool:
    return all(ord(character) < 256 for character in text)


def _is_finite(value: int | float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
