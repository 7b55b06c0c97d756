"""Messages as JSON."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn

from runnel.registry.format import InvalidData

SHOWN_CHARACTERS_MAX = 60
_NAME = re.compile(r"[^\W\d][\w.\[\]-]*")


def parse(text: str) -> Any:
    """The value of a JSON text. Raises InvalidData."""
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    except RecursionError:
        raise InvalidData("it is nested too deeply") from None
    except ValueError as error:
        raise InvalidData(f"it is not JSON: {error}") from None


def check_exact(data: bytes) -> None:
    """Raise InvalidData if JSON has what printing its value again would change."""
    json.loads(data, object_pairs_hook=_object, parse_float=_exact)


def at(path: Iterable[str | int], problem: str) -> str:
    """A problem with the place where it is, such as `at lines[0].price: …`."""
    place = "".join(f".{step}" if _NAME.fullmatch(str(step)) else f"[{json.dumps(step)}]" for step in path)
    return f"at {place.removeprefix('.')}: {problem}" if place else problem


def shown(value: Any) -> str:
    """A value in a message, shortened."""
    match value:
        case dict():
            return "an object"
        case list():
            return "an array"
    text = json.dumps(value[:SHOWN_CHARACTERS_MAX] if isinstance(value, str) else value)
    return text if len(text) <= SHOWN_CHARACTERS_MAX else f"{text[: SHOWN_CHARACTERS_MAX - 3]}..."


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) < len(members):
        twice = next(name for name, count in Counter(name for name, _ in members).items() if count > 1)
        raise InvalidData(f"{shown(twice)} occurs twice in an object")
    return found


def _exact(text: str) -> float:
    number = float(text)
    try:
        is_exact = Decimal(text) == Decimal(repr(number))
    except InvalidOperation:
        is_exact = False
    if not is_exact:
        raise InvalidData(f"{text[:SHOWN_CHARACTERS_MAX]} has more digits than are printed again")
    return number


def _no_constant(text: str) -> NoReturn:
    raise InvalidData(f'{text} is not a number of JSON; write "{text}"')
