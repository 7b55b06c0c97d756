"""Decodes JSON values: whole columns with Arrow's reader, or value by value if that fails.

Both decode alike: fields that are not in the schema are ignored, missing fields are null, and a value of
another type is malformed.
"""

import json
import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Context, Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from runnel.pipelines.source.values import Decoded, Malformed, all_valid, decode_each

CHUNK_VALUES = 1024
"""If a value is malformed, its chunk of this size is decoded value by value."""
INTEGER_DIGITS_MAX = 4000
"""Below the limit of Python's int(), whose cost is quadratic."""

ROOT = "value"
"""The path of a whole value."""

Convert = Callable[[Any], Any]


class JsonDecoder:
    """Decodes JSON values into columns of one type."""

    def __init__(self, kind: pa.DataType, texts: frozenset[str] = frozenset()) -> None:
        """`texts` are the paths of parts that stay JSON text, such as `value.lines[].price`."""
        self._kind = kind
        self._convert = _converter(kind, ROOT, texts)
        # Conversion through float would lose digits.
        self._parse_float = Decimal if _has_decimals(kind) else float
        self._parse_options = (
            pj.ParseOptions(explicit_schema=pa.schema(list(kind)), unexpected_field_behavior="ignore")
            if pa.types.is_struct(kind) and _is_plain(kind) and not texts
            else None
        )

    def decode(self, column: pa.BinaryArray) -> Decoded:
        """Decode a column of values."""
        if not len(column):
            return all_valid(pa.array([], self._kind))
        decoded = self._decode_whole(column)
        if decoded is not None:
            return decoded
        parts: list[Decoded] = []
        for start in range(0, len(column), CHUNK_VALUES):
            chunk = column.slice(start, CHUNK_VALUES)
            part = self._decode_whole(chunk) if len(column) > CHUNK_VALUES else None
            parts.append(part or decode_each(chunk, self._kind, self.decode_one))
        return Decoded(
            *(
                pa.concat_arrays([getattr(part, name) for part in parts])
                for name in ("values", "errors", "raw")
            )
        )

    def _decode_whole(self, column: pa.BinaryArray) -> Decoded | None:
        """The values, or None if any of them does not match the schema."""
        if self._parse_options is None:
            return None
        try:
            text = column.cast(pa.string())
        except pa.ArrowInvalid:
            return None
        filled = pc.fill_null(text, "{}") if text.null_count else text
        # Every value starts with { and ends with }: an incomplete value then makes the next one a syntax
        # error, and an equal number of rows means one row per value.
        if not (pc.all(pc.starts_with(filled, "{")).as_py() and pc.all(pc.ends_with(filled, "}")).as_py()):
            return None
        lines = pc.binary_join(_one_list(filled), "\n")[0].as_buffer()
        try:
            rows = pj.read_json(
                pa.BufferReader(lines),
                read_options=pj.ReadOptions(use_threads=False, block_size=lines.size + 1),
                parse_options=self._parse_options,
            )
        except pa.ArrowException:
            return None
        if len(rows) != len(column):
            return None
        values = rows.to_struct_array().combine_chunks().cast(self._kind)
        if text.null_count:
            values = pc.if_else(pc.is_null(text), pa.scalar(None, self._kind), values)
        return all_valid(values)

    def decode_one(self, text: bytes) -> Any:
        """Decode one value; Malformed if it does not match."""
        try:
            return self._convert(self._parse(text.decode("utf-8")))
        except UnicodeDecodeError as error:
            raise Malformed(f"not UTF-8: {error.reason} at byte {error.start}") from None
        except json.JSONDecodeError as error:
            raise Malformed(f"not JSON: {error}") from None
        except RecursionError:
            raise Malformed("not valid JSON: nested too deeply") from None

    def _parse(self, text: str) -> Any:
        try:
            return json.loads(text, parse_float=self._parse_float)
        except json.JSONDecodeError:
            raise
        except (ValueError, InvalidOperation):
            # It contains a huge number, which is harmless in a field that is not in the schema.
            return json.loads(text, parse_int=_any_integer, parse_float=_any_float)


def _any_integer(text: str) -> int | Decimal:
    return int(text) if len(text) <= INTEGER_DIGITS_MAX else Decimal(text)


def _any_float(text: str) -> Decimal | float:
    try:
        return Decimal(text)
    except InvalidOperation:
        return float(text)


def _one_list(column: pa.StringArray) -> pa.ListArray:
    return pa.ListArray.from_arrays(np.array([0, len(column)], dtype=np.int32), column)


def _is_plain(kind: pa.DataType) -> bool:
    """Does Arrow's reader decode this type as the converters do?"""
    if pa.types.is_struct(kind):
        return kind.num_fields > 0 and all(_is_plain(field.type) for field in kind)
    if pa.types.is_list(kind):
        return _is_plain(kind.value_type)
    return bool(
        pa.types.is_boolean(kind)
        or pa.types.is_signed_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_string(kind)
    )


def _has_decimals(kind: pa.DataType) -> bool:
    """Is there a decimal anywhere in this type?"""
    if pa.types.is_decimal(kind):
        return True
    return any(_has_decimals(kind.field(index).type) for index in range(kind.num_fields))


# Value by value.


def _converter(kind: pa.DataType, path: str, texts: frozenset[str]) -> Convert:
    """A function that converts a parsed JSON value to this type or raises Malformed; null stays null."""
    convert = _text_of if path in texts else _converter_of_type(kind, path, texts)

    def of_nullable(value: Any) -> Any:
        return None if value is None else convert(value)

    return of_nullable


def _text_of(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=float)


def _converter_of_type(kind: pa.DataType, path: str, texts: frozenset[str]) -> Convert:
    if pa.types.is_struct(kind):
        return _struct(kind, path, texts)
    if pa.types.is_map(kind):
        return _map(kind, path, texts)
    if pa.types.is_list(kind):
        item = _converter(kind.value_type, f"{path}[]", texts)
        items = _of_python_type(list, "an array", path)
        return lambda value: [item(one) for one in items(value)]
    for is_kind, make in _SCALARS:
        if is_kind(kind):
            return make(kind, path)
    raise ValueError(f"{path}: JSON cannot be read as {kind}")


def _struct(kind: pa.StructType, path: str, texts: frozenset[str]) -> Convert:
    fields = [(field.name, _converter(field.type, f"{path}.{field.name}", texts)) for field in kind]
    table = _of_python_type(dict, "an object", path)

    def convert(value: Any) -> dict[str, Any]:
        members = table(value)
        return {name: of_field(members.get(name)) for name, of_field in fields}

    return convert


def _map(kind: pa.MapType, path: str, texts: frozenset[str]) -> Convert:
    if not pa.types.is_string(kind.key_type):
        raise ValueError(f"{path}: the keys of a JSON object are strings, not {kind.key_type}")
    item = _converter(kind.item_type, f"{path}{{}}", texts)
    table = _of_python_type(dict, "an object", path)
    return lambda value: [(name, item(one)) for name, one in table(value).items()]


def _of_python_type(expected: type, what: str, path: str) -> Convert:
    def convert(value: Any) -> Any:
        # Exactly this type: bool is a subclass of int.
        if type(value) is not expected:
            raise Malformed(f"{path} is {_shortened(value)}, not {what}")
        return value

    return convert


def _integer(kind: pa.DataType, path: str) -> Convert:
    number = _of_python_type(int, "an integer", path)
    limit = 1 << (kind.bit_width - 1)

    def convert(value: Any) -> int:
        if type(value) is Decimal and not -limit <= value < limit:
            raise Malformed(f"{path} is {_shortened(value)}, too large for {kind.bit_width} bits")
        checked: int = number(value)
        if not -limit <= checked < limit:
            raise Malformed(f"{path} is {checked}, too large for {kind.bit_width} bits")
        return checked

    return convert


def _floating(kind: pa.DataType, path: str) -> Convert:
    def convert(value: Any) -> float:
        if type(value) not in (float, int, Decimal):
            raise Malformed(f"{path} is {_shortened(value)}, not a number")
        try:
            return float(value)
        except OverflowError:
            # Like 1e400, and like Arrow's reader.
            return math.inf if value > 0 else -math.inf

    return convert


def _decimal(kind: pa.Decimal128Type, path: str) -> Convert:
    digits = Context(prec=kind.precision)
    quantum = Decimal(1).scaleb(-kind.scale)

    def convert(value: Any) -> Decimal:
        if type(value) not in (int, float, str, Decimal):
            raise Malformed(f"{path} is {_shortened(value)}, not a decimal number")
        try:
            number = Decimal(value)
            if number.is_finite():
                return number.quantize(quantum, context=digits)
        except InvalidOperation:
            pass
        raise Malformed(f"{path} is {_shortened(value)}, not a decimal number that fits")

    return convert


def _timestamp(kind: pa.TimestampType, path: str) -> Convert:
    text = _of_python_type(str, "a timestamp in ISO 8601", path)

    def convert(value: Any) -> datetime:
        try:
            moment = datetime.fromisoformat(text(value))
        except ValueError:
            raise Malformed(f"{path} is {_shortened(value)}, not a timestamp in ISO 8601") from None
        if kind.tz is None:
            return moment.replace(tzinfo=None)
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)

    return convert


def _date(kind: pa.DataType, path: str) -> Convert:
    text = _of_python_type(str, "a date in ISO 8601", path)

    def convert(value: Any) -> date:
        try:
            return date.fromisoformat(text(value))
        except ValueError:
            raise Malformed(f"{path} is {_shortened(value)}, not a date in ISO 8601") from None

    return convert


def _shortened(value: Any) -> str:
    text = str(value) if type(value) is Decimal else json.dumps(value, default=float)
    return text if len(text) <= 60 else text[:57] + "…"


_SCALARS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any, str], Convert]], ...] = (
    (pa.types.is_boolean, lambda kind, path: _of_python_type(bool, "true or false", path)),
    (pa.types.is_signed_integer, _integer),
    (pa.types.is_floating, _floating),
    (pa.types.is_string, lambda kind, path: _of_python_type(str, "a string", path)),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_date, _date),
)
