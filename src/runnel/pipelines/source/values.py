"""Decodes values; malformed values are reported in columns, and never raise.

A malformed value becomes null, with the reason in `valueError` and its bytes in `rawValue`. A null value
stays null, without an error.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

ERROR_CHARACTERS_MAX = 500

DecodeOne = Callable[[bytes], Any]
"""Decodes one value, or raises Malformed."""


class Malformed(ValueError):
    """A value that does not match its format or schema."""


@dataclass(slots=True)
class Decoded:
    """A column of values, with the errors and bytes of malformed ones."""

    values: pa.Array
    errors: pa.StringArray
    raw: pa.BinaryArray
    schema_ids: pa.Int32Array | None = None
    """Of values that were written with schemas of a registry."""


def all_valid(values: pa.Array) -> Decoded:
    """A column without malformed values."""
    return Decoded(values, pa.nulls(len(values), pa.string()), pa.nulls(len(values), pa.binary()))


def decode_each(column: pa.BinaryArray, kind: pa.DataType, decode_one: DecodeOne) -> Decoded:
    """Decode value by value, so that each may be malformed."""
    values: list[Any] = []
    errors: list[str | None] = []
    texts = column.to_pylist()
    for text in texts:
        value, error = None, None
        if text is not None:
            try:
                value = decode_one(text)
            except Malformed as malformed:
                error = _reason(malformed)
            except MemoryError:
                # A problem of the machine, not of the value.
                raise
            except Exception as unforeseen:  # noqa: BLE001 - no value may fail a query
                error = _reason(unforeseen, f"cannot be decoded: {type(unforeseen).__name__} ")
        values.append(value)
        errors.append(error)
    converted = _converted(values, errors, kind)
    raw = [text if error is not None else None for text, error in zip(texts, errors, strict=True)]
    return Decoded(converted, pa.array(errors, pa.string()), pa.array(raw, pa.binary()))


def _converted(values: list[Any], errors: list[str | None], kind: pa.DataType) -> pa.Array:
    """The values as an Arrow array; values that it cannot represent, as lone surrogates, are malformed."""
    try:
        return pa.array(values, kind)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - one of them has no representation in Arrow
        for index, value in enumerate(values):
            try:
                pa.array([value], kind)
            except Exception as error:  # noqa: BLE001 - this one
                values[index] = None
                errors[index] = _reason(error, f"cannot be stored as {kind}: ")
        return pa.array(values, kind)


def _reason(error: Exception, prefix: str = "") -> str:
    """The reason as valid UTF-8 of bounded length; it may quote parts of the value."""
    text = f"{prefix}{error}"[:ERROR_CHARACTERS_MAX]
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def decode_strings(column: pa.BinaryArray) -> Decoded:
    """Decode UTF-8 strings."""
    try:
        return all_valid(column.cast(pa.string()))
    except pa.ArrowInvalid:
        return decode_each(column, pa.string(), _decode_string)


def _decode_string(text: bytes) -> str:
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Malformed(f"not UTF-8: {error.reason} at byte {error.start}") from None
