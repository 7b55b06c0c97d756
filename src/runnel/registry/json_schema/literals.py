"""Single values as schemas that accept nothing else, and scalars tried on a schema."""

from collections.abc import Mapping
from fractions import Fraction

from runnel.registry.json_schema import limits
from runnel.registry.json_schema.json_text import Json, Number, canonical
from runnel.registry.json_schema.keywords import type_of
from runnel.registry.json_schema.patterns import matches
from runnel.registry.json_schema.schema import NOTHING, Draft, Schema

_ELEMENTS_MAX = 100
_DEPTH_MAX = 5


class Literals:
    """Values as schemas: each is made once, and not very many of them."""

    def __init__(self) -> None:
        self._left = limits.LITERALS_MAX
        self._known: dict[int, Schema | None] = {}

    def of(self, value: Json) -> Schema | None:
        """A schema of one value, which must outlive this; None if it is large, or there are too many."""
        key = id(value)
        if key not in self._known:
            self._known[key] = self._made(value, 0)
        return self._known[key]

    def _made(self, value: Json, depth: int) -> Schema | None:
        self._left -= 1
        is_large = isinstance(value, Mapping | list) and (len(value) > _ELEMENTS_MAX or depth == _DEPTH_MAX)
        if self._left < 0 or is_large:
            return None
        schema = Schema(draft=Draft.DRAFT_2020_12, location=("",), raw=value, kind="base")
        schema.parts = (schema,)
        schema.types = frozenset({type_of(value)})
        if isinstance(value, Mapping):
            children = {name: self._made(child, depth + 1) for name, child in value.items()}
            schema.properties = {name: child for name, child in children.items() if child is not None}
            schema.required = frozenset(value)
            schema.additional_properties = NOTHING
            schema.bounds = {"minProperties": len(value), "maxProperties": len(value)}
            return schema if len(schema.properties) == len(value) else None
        if isinstance(value, list):
            items = [self._made(child, depth + 1) for child in value]
            schema.prefix_items = [item for item in items if item is not None]
            schema.items = NOTHING
            schema.bounds = {"minItems": len(value), "maxItems": len(value)}
            return schema if len(schema.prefix_items) == len(value) else None
        schema.values = frozenset({canonical(value)})
        schema.values_types = schema.types
        return schema


def accepts_scalar(schema: Schema, value: Json) -> bool:
    """Whether the assertions of a schema certainly accept a value that is neither object nor array."""
    if type_of(value) not in schema.types or (
        schema.values is not None and canonical(value) not in schema.values
    ):
        return False
    if isinstance(value, str):
        length = len(value)
        fits = schema.bounds.get("minLength", 0) <= length <= schema.bounds.get("maxLength", length)
        return fits and (schema.pattern is None or matches(schema.pattern, value) is True)
    if isinstance(value, bool) or value is None:
        return True
    assert not isinstance(value, Mapping | list)
    return _accepts_number(schema, value)  # type: ignore[arg-type]


def _accepts_number(schema: Schema, value: Number) -> bool:
    bounds = schema.bounds
    return (
        bounds.get("minimum", value) <= value <= bounds.get("maximum", value)
        and ("exclusiveMinimum" not in bounds or bounds["exclusiveMinimum"] < value)
        and ("exclusiveMaximum" not in bounds or value < bounds["exclusiveMaximum"])
        and (schema.multiple_of is None or (Fraction(value) / Fraction(schema.multiple_of)).denominator == 1)
    )
