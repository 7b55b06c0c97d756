"""Each difference has its name and position, and a fixed set of them is compatible."""

import json

import pytest

from runnel.registry.format import Incompatibility, ReferencedSchema
from runnel.registry.json_schema import FORMAT, Policy, differences, kinds
from tests.registry.json_schema.array_cases import ARRAYS
from tests.registry.json_schema.case import INTEGER, NUMBER, STRING, Case, modern, properties, variant
from tests.registry.json_schema.combined_cases import COMBINED
from tests.registry.json_schema.object_cases import OBJECTS
from tests.registry.json_schema.reference_cases import REFERENCES
from tests.registry.json_schema.scalar_cases import SCALARS

CASES = [*SCALARS, *OBJECTS, *ARRAYS, *COMBINED, *REFERENCES]


def parsed(schema, *references):
    return FORMAT.parse(json.dumps(schema), references)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_differences(case: Case):
    found = differences(reader=parsed(case.reader), writer=parsed(case.writer))
    assert sorted(f"{each.kind} {each.path}" for each in found.incompatible) == sorted(case.breaking)
    assert sorted(f"{each.kind} {each.path}" for each in found.compatible) == sorted(case.harmless)


def test_the_table_is_unambiguous():
    assert len({case.title for case in CASES}) == len(CASES) >= 60


def test_each_policy_accepts_a_fixed_set():
    assert kinds.EXACT < kinds.STRICT < kinds.LENIENT
    assert not kinds.LENIENT & kinds.INCOMPATIBLE


LENIENT = [
    (properties(a=STRING), properties(a=STRING, b=STRING), True),
    (properties(), properties(required=("b",), b={**STRING, "default": ""}), True),
    (properties(), properties(required=("b",), b=STRING), False),
    (properties(True, a=STRING, b=STRING), properties(True, a=STRING), True),
    (properties(), properties(True), True),
    (properties(), {**properties(), "additionalProperties": STRING}, True),
    (
        {**properties(), "additionalProperties": STRING},
        {**properties(), "additionalProperties": NUMBER},
        False,
    ),
    (modern(properties()), modern({**properties(), "unevaluatedProperties": False}), True),
    (properties(a=NUMBER), properties(a=INTEGER), False),
    ({"oneOf": [variant("a")]}, {"oneOf": [variant("a", x=STRING), variant("b")]}, True),
]


@pytest.mark.parametrize(("writer", "reader", "compatible"), LENIENT)
def test_the_lenient_policy(writer, reader, compatible):
    found = differences(reader=parsed(reader), writer=parsed(writer), policy=Policy.LENIENT)
    assert (not found.incompatible) == compatible


def test_a_referenced_schema_is_compared():
    writer = parsed({"items": {"$ref": "item.json"}}, ReferencedSchema("item.json", json.dumps(INTEGER)))
    wider = parsed({"items": {"$ref": "item.json"}}, ReferencedSchema("item.json", json.dumps(NUMBER)))
    assert wider.incompatibilities(writer) == []
    assert [each.kind for each in writer.incompatibilities(wider)] == ["TYPE_NARROWED"]


MESSAGES = [
    (
        properties(order=properties(lines={"type": "array", "items": {**INTEGER, "maximum": 9}})),
        properties(order=properties(lines={"type": "array", "items": {**INTEGER, "maximum": 5}})),
        Incompatibility(
            "MAXIMUM_DECREASED",
            "/properties/order/properties/lines/items/maximum",
            "Property \"order.lines[]\": the reader's maximum is 5, the writer's 9.",
        ),
    ),
    (
        properties(a=STRING),
        properties(a=STRING, **{"b/c": STRING}),
        Incompatibility(
            "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",
            "/properties/b~1c",
            'Property "b/c": the reader adds it as an optional property; the writer does not name it, but '
            "accepts any further properties, with other values.",
        ),
    ),
    (
        {"enum": ["a", "b", "c", "d", "e"]},
        {"enum": ["e"]},
        Incompatibility(
            "ENUM_ARRAY_NARROWED",
            "/enum",
            'The schema: the reader does not accept "a", "b", "c", …, which the writer may write.',
        ),
    ),
    (
        {"anyOf": [STRING, {"type": "null"}]},
        {"anyOf": [STRING, INTEGER]},
        Incompatibility(
            "COMBINED_TYPE_SUBSCHEMAS_CHANGED",
            "/",
            "The schema: no branch of the reader matches branch 1 of the writer's anyOf; in branch 1, /: the "
            "reader accepts integer, the writer may write null.",
        ),
    ),
    (
        {"allOf": [STRING]},
        {"allOf": [{**STRING, "maxLength": 2}]},
        Incompatibility(
            "COMBINED_TYPE_SUBSCHEMAS_CHANGED",
            "/",
            "The schema: no branch of the reader matches branch 0 of the writer's allOf; in branch 0, "
            "/maxLength: the reader's maxLength is 2, the writer has none.",
        ),
    ),
]


@pytest.mark.parametrize(
    ("writer", "reader", "expected"), MESSAGES, ids=lambda value: getattr(value, "kind", "")
)
def test_messages_name_the_property_and_the_reason(writer, reader, expected):
    assert parsed(reader).incompatibilities(parsed(writer)) == [expected]


def test_positions_of_any_length_are_shortened():
    name = "n" * 5_000
    writer = parsed(properties(**{name: STRING}))
    [found] = parsed(properties(**{name: INTEGER})).incompatibilities(writer)
    assert len(found.path) < 1_100
    assert len(found.message) < 200
