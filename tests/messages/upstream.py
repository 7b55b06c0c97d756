"""Kafka's message schemas, version by version, in the form of our declarations."""

import json
from pathlib import Path
from typing import Any

from runnel.wire import Message, fields_of
from runnel.wire.primitives import ZERO_UUID, ArrayOf, StructOf, WireType
from runnel.wire.struct import UNSET, Field, Span, Struct
from tools.import_schema import snake

FACTS = Path(__file__).with_name("facts")
"""Names, types, versions, tags and defaults of the messages and records of Apache Kafka 4.3."""
ZEROS = {"string": "", "bytes": b"", "records": None, "bool": False, "float64": 0.0, "uuid": ZERO_UUID}

Facts = dict[str, Any]


def load(name: str) -> Facts:
    """The schemas in one file, by message name."""
    facts: Facts = json.loads((FACTS / name).read_text())
    return facts


def expected(spec: Facts, fields: list[Facts], version: int) -> list[Any]:
    """The fields of one version according to Kafka's schema."""
    structs = {each["name"]: each["fields"] for each in spec.get("commonStructs", [])}
    rows = []
    for field in fields:
        versions = Span.parse(field.get("versions") or field["taggedVersions"])
        if not versions.covers(version):
            continue
        kind = field["type"].removeprefix("[]")
        inner = field.get("fields", structs.get(kind))
        tagged = Span.parse(field.get("taggedVersions", "none")).covers(version)
        nullable = Span.parse(field.get("nullableVersions", "none")).covers(version)
        rows.append(
            (
                snake(field["name"]),
                "[]" * field["type"].startswith("[]") + ("struct" if inner is not None else kind),
                nullable,
                int(field["tag"]) if tagged else None,
                expected_default(field, nullable),
                expected(spec, inner, version) if inner is not None else None,
            )
        )
    return rows


def expected_default(field: Facts, nullable: bool) -> Any:
    kind, value = field["type"], field.get("default")
    is_composite = kind.startswith("[]") or kind[0].isupper()
    if value in (None, "null") and "default" in field:
        return None
    if is_composite:
        return "new"
    if value is None or (value == "" and kind == "string"):
        zero = ZEROS.get(kind, 0)
        return b"" if kind == "records" and not nullable else zero
    if kind == "bool":
        return value in (True, "true")
    return int(str(value), 0) if kind.startswith(("int", "uint")) else value


def declared(message: type[Struct], version: int) -> list[Any]:
    """The fields of one version according to our declaration."""
    return [declared_field(field, version) for field in fields_of(message) if field.versions.covers(version)]


def declared_field(field: Field, version: int) -> Any:
    element = field.type.element if isinstance(field.type, ArrayOf) else field.type
    left_out = (
        isinstance(field.type, StructOf) and field.tag is not None and not field.nullable.covers(version)
    )
    return (
        field.name,
        "[]" * isinstance(field.type, ArrayOf) + kind_name(element),
        field.nullable.covers(version),
        field.tag,
        "new" if field.default is UNSET or left_out else field.default,
        declared(element.struct, version) if isinstance(element, StructOf) else None,
    )


def kind_name(kind: WireType) -> str:
    assert not isinstance(kind, ArrayOf)
    return "struct" if isinstance(kind, StructOf) else kind.name


def assert_as_upstream(message: type[Message], spec: Facts) -> None:
    """Assert that the declaration matches Kafka's schema in every version."""
    valid = Span.parse(spec["validVersions"])
    assert list(message.versions) == list(range(valid.first, valid.last + 1))
    flexible = Span.parse(spec["flexibleVersions"])
    for version in message.versions:
        is_flexible = message.flexible_from is not None and version >= message.flexible_from
        assert is_flexible == flexible.covers(version)
        assert declared(message, version) == expected(spec, spec["fields"], version), f"v{version}"
