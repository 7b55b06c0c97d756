"""JSON as schemas are written in it: exact numbers, unambiguous objects, and one canonical text."""

import json
import re
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal, InvalidOperation
from typing import NoReturn, TypeAlias

from runnel.registry.format import InvalidSchema
from runnel.registry.json_schema import limits

Number: TypeAlias = int | Decimal
Json: TypeAlias = bool | Number | str | Sequence["Json"] | Mapping[str, "Json"] | None

_EXACT = Context(prec=limits.NUMBER_CHARACTERS_MAX + 2 * limits.NUMBER_EXPONENT_MAX)
_STRING_OR_BLANKS = re.compile(r'("(?:[^"\\]++|\\.)*+")|[ \t\r\n]++')


def parse(text: str) -> Json:
    """The value of a text. Raises InvalidSchema."""
    if len(text) > limits.TEXT_CHARACTERS_MAX:
        raise InvalidSchema(f"The schema has {len(text)} characters, at most {limits.TEXT_CHARACTERS_MAX}.")
    try:
        value: Json = json.loads(
            text,
            object_pairs_hook=_object,
            parse_float=_decimal,
            parse_int=_integer,
            parse_constant=_not_a_number,
        )
    except json.JSONDecodeError as error:
        raise InvalidSchema(f"The schema is not JSON: {error}.") from None
    except RecursionError:
        raise _nested_too_deeply() from None
    return value


def compact(text: str) -> str:
    """A JSON text without the blanks between its tokens."""
    return _STRING_OR_BLANKS.sub(r"\1", text)


def canonical(value: Json, nesting: int = 0) -> str:
    """Equal for equal values: without blanks, keys sorted, numbers in one form. Raises InvalidSchema."""
    match value:
        case None | bool():
            return json.dumps(value)
        case str():
            return _string(value)
        case int() | Decimal():
            return _number(value)
    if nesting >= limits.NESTING_MAX:
        raise _nested_too_deeply()
    if isinstance(value, Mapping):
        members = (f"{_string(key)}:{canonical(value[key], nesting + 1)}" for key in sorted(value))
        return "{" + ",".join(members) + "}"
    return "[" + ",".join(canonical(element, nesting + 1) for element in value) + "]"


def _string(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidSchema(f"The string {text!r:.80} has half of a surrogate pair.") from None
    return json.dumps(text, ensure_ascii=False)


def _number(value: Number) -> str:
    if isinstance(value, Decimal):
        if value == value.to_integral_value(context=_EXACT):
            return str(int(value))
        return str(value.normalize(_EXACT))
    return str(value)


def _object(members: list[tuple[str, Json]]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for key, value in members:
        if key in found:
            raise InvalidSchema(f"The key {key!r:.80} appears twice in one object.")
        found[key] = value
    return found


def _decimal(literal: str) -> Decimal:
    _check_digits(literal)
    try:
        value = Decimal(literal)
    except InvalidOperation:
        raise InvalidSchema(f"The number {literal} is out of range.") from None
    if value and abs(value.adjusted()) > limits.NUMBER_EXPONENT_MAX:
        raise InvalidSchema(f"The number {literal} is out of range.")
    return value or Decimal(0)


def _integer(literal: str) -> int:
    _check_digits(literal)
    return int(literal)


def _check_digits(literal: str) -> None:
    if len(literal) > limits.NUMBER_CHARACTERS_MAX:
        raise InvalidSchema(
            f"The number {literal[:9]}… has {len(literal)} digits, at most {limits.NUMBER_CHARACTERS_MAX}."
        )


def _not_a_number(literal: str) -> NoReturn:
    raise InvalidSchema(f"The schema is not JSON: {literal} is not a number.")


def _nested_too_deeply() -> InvalidSchema:
    return InvalidSchema(f"The schema nests more than {limits.NESTING_MAX} objects and arrays.")
