"""The values of keywords, each checked: a schema whose keyword has a value of the wrong kind is invalid."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from urllib.parse import urlsplit

from runnel.registry.format import InvalidSchema
from runnel.registry.json_schema import limits
from runnel.registry.json_schema.documents import invalid
from runnel.registry.json_schema.json_text import Json, Number, canonical
from runnel.registry.json_schema.paths import clipped
from runnel.registry.json_schema.schema import TYPES


@dataclass(slots=True)
class Keywords:
    """One schema's object, and where it is."""

    raw: Mapping[str, Json]
    location: tuple[str, ...]

    def __contains__(self, key: str) -> bool:
        return key in self.raw

    def number(self, key: str) -> Number | None:
        value = self.raw.get(key)
        if value is None and key not in self.raw:
            return None
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            raise self.invalid(key, f"{key} must be a number.")
        return value

    def count(self, key: str) -> int | None:
        value = self.number(key)
        if value is None:
            return None
        if value < 0 or value != int(value):
            raise self.invalid(key, f"{key} must be an integer that is not negative.")
        return int(value)

    def text(self, key: str) -> str | None:
        value = self.raw.get(key)
        if value is None and key not in self.raw:
            return None
        if not isinstance(value, str):
            raise self.invalid(key, f"{key} must be a string.")
        return value

    def uri(self, key: str) -> str | None:
        value = self.text(key)
        if value is not None:
            check_uri(value, key)
        return value

    def flag(self, key: str) -> bool:
        value = self.raw.get(key, False)
        if not isinstance(value, bool):
            raise self.invalid(key, f"{key} must be true or false.")
        return value

    def names(self, key: str) -> frozenset[str]:
        return self.names_of(self.raw.get(key, []), key)

    def names_of(self, value: Json, *path: str) -> frozenset[str]:
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise self.invalid(*path, f"{path[0]} must be an array of names.")
        return frozenset(str(name) for name in value)

    def members(self, key: str) -> Mapping[str, Json]:
        value = self.raw.get(key, {})
        if not isinstance(value, Mapping):
            raise self.invalid(key, f"{key} must be an object.")
        return value

    def elements(self, key: str) -> Sequence[Json]:
        """A list that is not empty; an empty one if the keyword is absent."""
        if key not in self.raw:
            return []
        value = self.raw[key]
        if not isinstance(value, list) or not value:
            raise self.invalid(key, f"{key} must be an array that is not empty.")
        return value

    def types(self) -> tuple[str, ...]:
        value = self.raw.get("type", [])
        names = value if isinstance(value, list) else [value]
        if not all(isinstance(name, str) and name in TYPES for name in names):
            raise self.invalid("type", f"type must be one or several of {', '.join(TYPES)}.")
        if "type" in self.raw and not names:
            raise self.invalid("type", "type must not be an empty array.")
        return tuple(sorted({str(name) for name in names}))

    def values(self) -> list[Json]:
        """The values of enum; duplicates are harmless."""
        value = self.raw["enum"]
        if not isinstance(value, list):
            raise self.invalid("enum", "enum must be an array.")
        return value

    def annotations(self) -> dict[str, str]:
        """Canonical values of what does not change which data is valid."""
        keys = {"$id": "ID", "id": "ID", "title": "TITLE", "description": "DESCRIPTION", "default": "DEFAULT"}
        return {name: canonical(self.raw[key]) for key, name in keys.items() if key in self.raw}

    def invalid(self, *path_and_problem: str) -> Exception:
        *path, problem = path_and_problem
        return invalid((*self.location, *path), problem)


def check_uri(uri: str, what: str) -> None:
    """Raises InvalidSchema if this is not a URI, or one that is too long to be joined with others."""
    if len(uri) > limits.URI_CHARACTERS_MAX:
        raise InvalidSchema(f"{what} has {len(uri)} characters, at most {limits.URI_CHARACTERS_MAX}.")
    try:
        urlsplit(uri)
    except ValueError:
        raise InvalidSchema(f'{what} "{clipped(uri)}" is not a URI.') from None


def type_of(value: Json) -> str:
    """The type of a value, in the disjoint names of TYPES."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case int() | Decimal():
            return "integer" if value == int(value) else "fraction"
        case Mapping():
            return "object"
    return "array"


def type_of_text(text: str) -> str:
    """The type of a value by its canonical text."""
    known = {"n": "null", "t": "boolean", "f": "boolean", '"': "string", "{": "object", "[": "array"}
    return known.get(text[0]) or ("fraction" if "." in text or "E" in text else "integer")
