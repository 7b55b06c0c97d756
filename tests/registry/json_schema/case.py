"""What compatibility cases are written in."""

from typing import Any, NamedTuple

Schema = dict[str, Any] | bool


class Case(NamedTuple):
    """A change. It is compatible if `breaking` is empty; differences are given as KIND path."""

    title: str
    writer: Schema
    reader: Schema
    breaking: tuple[str, ...] = ()
    harmless: tuple[str, ...] = ()


STRING = {"type": "string"}
NUMBER = {"type": "number"}
INTEGER = {"type": "integer"}
NULL = {"type": "null"}


def properties(*closed: Any, required: Any = (), **schemas: Any) -> dict[str, Any]:
    """An object with properties, open unless `closed` is given."""
    schema: dict[str, Any] = {"type": "object", "properties": schemas}
    if closed:
        schema["additionalProperties"] = False
    if required:
        schema["required"] = list(required)
    return schema


def modern(schema: dict[str, Any]) -> dict[str, Any]:
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def variant(kind: Any, **schemas: Any) -> dict[str, Any]:
    """A branch that a constant tells from others."""
    return properties(required=("kind",), kind={"const": kind}, **schemas)
