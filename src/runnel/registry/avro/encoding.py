"""Values of JSON as data of Avro.

A value of a union is `{"branch": value}`, as Avro's JSON encoding has it, or the value alone if it fits one
branch only.
"""

import math
import struct
from collections.abc import Sequence
from typing import Any

from runnel.registry.avro.limits import DATA_BYTES_MAX, DATA_DEPTH_MAX, DATA_VALUES_MAX
from runnel.registry.avro.model import (
    NULL,
    Array,
    Enum,
    Field,
    Fixed,
    Map,
    Primitive,
    Record,
    Schema,
    Union,
    branch_name,
)
from runnel.registry.format import InvalidData
from runnel.registry.json_data import at, shown

_LIMITS = {"int": 2**31, "long": 2**63}
_FLOATS = {"float": "<f", "double": "<d"}
_NAMED_NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_NAMES_SHOWN = 20


def encode(schema: Schema, value: Any) -> bytes:
    """The data of a value. Raises InvalidData, which names the field that does not fit."""
    try:
        return _Encoder().value(schema, value, 0)
    except _Unfit as unfit:
        raise InvalidData(at(unfit.path, unfit.problem)) from None


class _Unfit(Exception):
    """A value does not fit a type; another branch of a union may fit."""

    def __init__(self, problem: str, path: Sequence[str | int] = ()) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = tuple(path)

    def within(self, step: str | int) -> "_Unfit":
        """The same as seen from the container."""
        return _Unfit(self.problem, (step, *self.path))


class _Encoder:
    """Encodes one value.

    Branches of unions are tried, so that types meet the same part of the value repeatedly: each pair of a
    type and a container is encoded once.
    """

    def __init__(self) -> None:
        self._values_left = DATA_VALUES_MAX
        self._bytes_left = DATA_BYTES_MAX
        self._tried: dict[tuple[int, int], bytes | _Unfit] = {}
        self._is_default = False

    def value(self, schema: Schema, value: Any, depth: int) -> bytes:
        self._values_left -= 1
        if self._values_left < 0 or depth > DATA_DEPTH_MAX:
            raise InvalidData("it has too many values or levels")
        match schema:
            case Primitive():
                return self._primitive(schema.type, value)
            case Record():
                return self._record(schema, value, depth + 1)
            case Enum():
                if not isinstance(value, str) or value not in schema.symbols:
                    raise _Unfit(f"{shown(value)} is not a symbol of {schema.full_name}")
                return _long(schema.symbols.index(value))
            case Union():
                return self._union(schema, value, depth + 1)
            case Fixed():
                return self._fixed(schema, value)
            case Array():
                return self._array(schema, value, depth + 1)
            case Map():
                return self._map(schema, value, depth + 1)

    def _primitive(self, kind: str, value: Any) -> bytes:
        match kind, value:
            case "null", None:
                return b""
            case "boolean", bool():
                return b"\x01" if value else b"\x00"
            case "int" | "long", int() if not isinstance(value, bool):
                if not -_LIMITS[kind] <= value < _LIMITS[kind]:
                    raise _Unfit(f"{shown(value)} is out of the range of type {kind}")
                return _long(value)
            case "float" | "double", int() | float() | str() if not isinstance(value, bool):
                return _float(kind, value)
            case "bytes", str():
                return self._sized(_latin(value, kind))
            case "string", str():
                return self._text(value)
        raise _Unfit(f"{shown(value)} is not of type {kind}")

    def _record(self, record: Record, value: Any, depth: int) -> bytes:
        if not isinstance(value, dict):
            raise _Unfit(f"{shown(value)} is not a record {record.full_name}")
        names = [field.name for field in record.fields]
        # A misspelt field would otherwise be ignored, and get its default.
        if unknown := value.keys() - set(names):
            raise _Unfit(
                f"{record.full_name} has no field {shown(min(unknown))}: its fields are {_listed(names)}"
            )
        return b"".join([self._field(record, field, value, depth) for field in record.fields])

    def _field(self, record: Record, field: Field, value: dict[str, Any], depth: int) -> bytes:
        try:
            if field.name in value:
                return self.value(field.schema, value[field.name], depth)
            if field.has_default:
                return self._default(field, depth)
        except _Unfit as unfit:
            raise unfit.within(field.name) from None
        raise _Unfit(f"the field {field.name} of {record.full_name} is missing, and it has no default")

    def _default(self, field: Field, depth: int) -> bytes:
        before, self._is_default = self._is_default, True
        try:
            return self.value(field.schema, field.default, depth)
        finally:
            self._is_default = before

    def _array(self, array: Array, value: Any, depth: int) -> bytes:
        if not isinstance(value, list):
            raise _Unfit(f"{shown(value)} is not an array")
        parts = [_long(len(value))] if value else []
        for index, item in enumerate(value):
            try:
                parts.append(self.value(array.items, item, depth))
            except _Unfit as unfit:
                raise unfit.within(index) from None
        return b"".join((*parts, b"\x00"))

    def _map(self, schema: Map, value: Any, depth: int) -> bytes:
        if not isinstance(value, dict):
            raise _Unfit(f"{shown(value)} is not a map")
        parts = [_long(len(value))] if value else []
        for name, item in value.items():
            try:
                parts += [self._text(name), self.value(schema.values, item, depth)]
            except _Unfit as unfit:
                raise unfit.within(name) from None
        return b"".join((*parts, b"\x00"))

    def _fixed(self, fixed: Fixed, value: Any) -> bytes:
        if not isinstance(value, str):
            raise _Unfit(f"{shown(value)} is not of type {fixed.full_name}")
        data = _latin(value, fixed.full_name)
        if len(data) != fixed.size:
            raise _Unfit(f"{shown(value)} has {len(data)} bytes, and {fixed.full_name} has {fixed.size}")
        return self._counted(data)

    def _text(self, text: str) -> bytes:
        try:
            return self._sized(text.encode())
        except UnicodeEncodeError:
            raise _Unfit(f"{shown(text)} has half of a surrogate pair") from None

    def _sized(self, data: bytes) -> bytes:
        return _long(len(data)) + self._counted(data)

    def _counted(self, data: bytes) -> bytes:
        self._bytes_left -= len(data)
        if self._bytes_left < 0:
            raise InvalidData(f"it has more than {DATA_BYTES_MAX} bytes")
        return data

    # Unions.

    def _union(self, union: Union, value: Any, depth: int) -> bytes:
        if self._is_default:
            return self._first_fitting(union, value, depth)
        named = self._named_branch(union, value, depth)
        if isinstance(named, bytes):
            return named
        attempts = [self._attempt(union, index, value, depth) for index in range(len(union.branches))]
        fitting = [index for index, data in enumerate(attempts) if isinstance(data, bytes)]
        if len(fitting) > 1:
            name = branch_name(union.branches[fitting[0]])
            names = [branch_name(union.branches[index]) for index in fitting]
            raise _Unfit(
                f'{shown(value)} fits several branches of the union: {_listed(names)}; write {{"{name}": …}}'
            )
        for attempt in attempts:
            if isinstance(attempt, bytes):
                return attempt
        raise named or _misfit(union, value, attempts)

    def _named_branch(self, union: Union, value: Any, depth: int) -> bytes | _Unfit | None:
        """The data of `{"branch": value}`, or why the value does not fit; None if it is not of that form."""
        if not isinstance(value, dict) or len(value) != 1:
            return None
        ((name, inner),) = value.items()
        for index, branch in enumerate(union.branches):
            if branch_name(branch) == name:
                found = self._attempt(union, index, inner, depth)
                return found if isinstance(found, bytes) else found.within(name)
        return None

    def _first_fitting(self, union: Union, value: Any, depth: int) -> bytes:
        """Defaults are without names of branches, and usually of the first one."""
        for index in range(len(union.branches)):
            found = self._attempt(union, index, value, depth)
            if isinstance(found, bytes):
                return found
        raise _Unfit(f"the default {shown(value)} fits no branch of the union")

    def _attempt(self, union: Union, index: int, value: Any, depth: int) -> bytes | _Unfit:
        branch = union.branches[index]
        # Containers are objects of their own, unlike small numbers and texts.
        key = (id(branch), id(value)) if isinstance(value, dict | list) else None
        found = None if key is None else self._tried.get(key)
        if found is None:
            try:
                found = self.value(branch, value, depth)
            except _Unfit as unfit:
                found = unfit
            if key is not None:
                self._tried[key] = found
        return _long(index) + found if isinstance(found, bytes) else found


def _misfit(union: Union, value: Any, attempts: Sequence[bytes | _Unfit]) -> _Unfit:
    """Why a value fits no branch: in detail if it can only have been meant as one of them."""
    meant = [
        attempt
        for branch, attempt in zip(union.branches, attempts, strict=True)
        if branch.type != NULL and isinstance(attempt, _Unfit)
    ]
    if len(meant) == 1 and value is not None:
        return meant[0]
    names = _listed([branch_name(branch) for branch in union.branches])
    return _Unfit(f"{shown(value)} fits no branch of the union: {names}")


def _float(kind: str, value: int | float | str) -> bytes:
    if isinstance(value, str):
        if value not in _NAMED_NUMBERS:
            raise _Unfit(f"{shown(value)} is not of type {kind}")
        return struct.pack(_FLOATS[kind], _NAMED_NUMBERS[value])
    try:
        # 1e999 is parsed as an infinity.
        if isinstance(value, float) and not math.isfinite(value):
            raise OverflowError
        return struct.pack(_FLOATS[kind], value)
    except OverflowError:
        raise _Unfit(f"{shown(value)} is out of the range of type {kind}") from None


def _latin(text: str, kind: str) -> bytes:
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        raise _Unfit(f"{shown(text)} is not of type {kind}: its characters are those up to \\u00ff") from None


def _long(number: int) -> bytes:
    value = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMES_SHOWN]) + (", …" if len(names) > _NAMES_SHOWN else "")
