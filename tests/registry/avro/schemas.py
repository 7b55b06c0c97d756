"""Random Avro schemas, changed versions of them, and data."""

import copy
from typing import Any

from hypothesis import strategies as st

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
NAMES = ("a", "b", "c", "d")
SYMBOLS = ("X", "Y", "Z")
DEFAULTS: dict[str, Any] = {
    "null": None,
    "boolean": True,
    "int": 1,
    "long": 2,
    "float": 1.5,
    "double": 2.5,
    "bytes": "\x00",
    "string": "text",
}
VALUES = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    # Bytes that may be read as a string are one.
    "bytes": st.text(max_size=5).map(str.encode),
    "string": st.text(max_size=5),
}


@st.composite
def schemas(draw, depth: int = 3, counter: list[int] | None = None) -> Any:
    """A schema without recursion; names are unique."""
    counter = [0] if counter is None else counter
    kinds = [*PRIMITIVES, "enum", "fixed"]
    if depth:
        kinds += ["record", "record", "array", "map", "union"] * 3
    kind = draw(st.sampled_from(kinds))
    if kind in PRIMITIVES:
        return kind
    inner = schemas(depth=depth - 1, counter=counter)
    match kind:
        case "array":
            return {"type": "array", "items": draw(inner)}
        case "map":
            return {"type": "map", "values": draw(inner)}
        case "union":
            return draw(unions(depth - 1, counter))
    counter[0] += 1
    name = f"N{counter[0]}"
    if kind == "enum":
        symbols = draw(st.lists(st.sampled_from(SYMBOLS), min_size=1, unique=True))
        default = {"default": symbols[0]} if draw(st.booleans()) else {}
        return {"type": "enum", "name": name, "symbols": symbols, **default}
    if kind == "fixed":
        return {"type": "fixed", "name": name, "size": draw(st.integers(1, 4))}
    names = draw(st.lists(st.sampled_from(NAMES), unique=True))
    return {"type": "record", "name": name, "fields": [draw(fields(name, inner)) for name in names]}


@st.composite
def unions(draw, depth: int, counter: list[int]) -> list[Any]:
    primitive = draw(st.lists(st.sampled_from(PRIMITIVES), min_size=1, max_size=3, unique=True))
    more = [
        one
        for one in draw(st.lists(schemas(depth=depth, counter=counter), max_size=1))
        if isinstance(one, dict)
    ]
    return [*primitive, *more]


@st.composite
def fields(draw, name: str, types: Any) -> dict[str, Any]:
    schema = draw(types)
    has_default = isinstance(schema, str) and draw(st.booleans())
    return {"name": name, "type": schema, **({"default": DEFAULTS[schema]} if has_default else {})}


@st.composite
def evolved_schemas(draw) -> tuple[Any, Any]:
    """A reader's schema and the writer's that it was changed from."""
    counter = [0]
    writer = draw(schemas(counter=counter))
    reader = draw(changed(copy.deepcopy(writer), counter))
    return reader, writer


@st.composite
def changed(draw, schema: Any, counter: list[int]) -> Any:
    """A schema with some parts changed, in ways that readers often can resolve."""
    if isinstance(schema, str):
        return draw(st.sampled_from([schema, schema, *PRIMITIVES]))
    if isinstance(schema, list):
        kept = [draw(changed(one, counter)) if isinstance(one, dict) else one for one in schema]
        more = [
            one for one in draw(st.permutations(PRIMITIVES))[: draw(st.integers(0, 2))] if one not in kept
        ]
        return draw(st.permutations(kept + more))
    match schema["type"]:
        case "array":
            return {**schema, "items": draw(changed(schema["items"], counter))}
        case "map":
            return {**schema, "values": draw(changed(schema["values"], counter))}
        case "enum":
            symbols = draw(st.lists(st.sampled_from(SYMBOLS), min_size=1, unique=True))
            default = {"default": symbols[0]} if draw(st.booleans()) else {}
            return {"type": "enum", "name": schema["name"], "symbols": symbols, **default}
        case "record":
            return draw(changed_record(schema, counter))
    return schema


@st.composite
def changed_record(draw, schema: Any, counter: list[int]) -> Any:
    kept = [one for one in schema["fields"] if draw(st.integers(0, 4))]
    shown = [{"name": one["name"], "type": draw(changed(one["type"], counter))} for one in kept]
    free = [name for name in NAMES if name not in {one["name"] for one in kept}]
    if free and draw(st.booleans()):
        shown.append(draw(fields(free[0], st.sampled_from(PRIMITIVES))))
    renamed = draw(st.integers(0, 9)) == 0 and shown
    if renamed:
        shown[0] |= {"name": "renamed", "aliases": [shown[0]["name"]]}
    return {**schema, "fields": draw(st.permutations(shown))}


@st.composite
def values_of(draw, schema: Any) -> Any:
    """Data of a schema."""
    if isinstance(schema, str):
        return draw(VALUES[schema])
    if isinstance(schema, list):
        branch = draw(st.sampled_from(schema))
        value = draw(values_of(branch))
        # Without its name, fastavro would have to guess the branch.
        return (branch["name"], value) if isinstance(branch, dict) and "name" in branch else value
    match schema["type"]:
        case "array":
            return draw(st.lists(values_of(schema["items"]), max_size=2))
        case "map":
            return draw(st.dictionaries(st.text(max_size=3), values_of(schema["values"]), max_size=2))
        case "enum":
            return draw(st.sampled_from(schema["symbols"]))
        case "fixed":
            return draw(st.binary(min_size=schema["size"], max_size=schema["size"]))
    return {one["name"]: draw(values_of(one["type"])) for one in schema["fields"]}
