"""Expensive schemas: the steps of a comparison are counted and limited."""

import json

import pytest

from runnel.registry.format import InvalidSchema
from runnel.registry.json_schema import FORMAT, TooCostly, differences, limits, patterns
from runnel.registry.json_schema.parser import parse
from tests.registry.json_schema.case import INTEGER, NUMBER, STRING, properties, variant


def parsed(schema):
    return FORMAT.parse(json.dumps(schema))


def steps(writer, reader):
    return differences(reader=parsed(reader), writer=parsed(writer)).steps


def wide(count, schema):
    return properties(True, **{f"p{number}": schema for number in range(count)})


def doubling(levels, leaf):
    """Each definition uses the next one twice: 2^levels paths lead to the leaf."""
    definitions = {
        str(level): properties(
            True, a={"$ref": f"#/definitions/{level + 1}"}, b={"$ref": f"#/definitions/{level + 1}"}
        )
        for level in range(levels)
    }
    return {"$ref": "#/definitions/0", "definitions": {**definitions, str(levels): leaf}}


def mutual(count, leaf, criterion="anyOf"):
    """Each definition refers to all others through a combination."""
    branches = [{"type": "null"}, *({"$ref": f"#/definitions/{number}"} for number in range(count))]
    definitions = {
        str(number): variant(str(number), next={criterion: branches}, value=leaf) for number in range(count)
    }
    return {"$ref": "#/definitions/0", "definitions": definitions}


def chain(count, leaf):
    """A chain of definitions, deeper than any recursion could follow."""
    definitions = {
        str(level): properties(True, a={"$ref": f"#/definitions/{level + 1}"}) for level in range(count)
    }
    return {"$ref": "#/definitions/0", "definitions": {**definitions, str(count): leaf}}


def test_steps_grow_with_the_size():
    small, large = (steps(wide(count, INTEGER), wide(count, NUMBER)) for count in (500, 5_000))
    assert large < 11 * small
    assert large < limits.STEPS_MAX / 2


def test_shared_definitions_are_compared_once():
    found = differences(reader=parsed(doubling(60, STRING)), writer=parsed(doubling(60, INTEGER)))
    assert found.steps < 20_000
    assert len(found.incompatible) == limits.DIFFERENCES_MAX
    assert {each.kind for each in found.incompatible} == {"TYPE_CHANGED"}


def test_depth_has_no_limit_of_its_own():
    found = differences(reader=parsed(chain(2_000, STRING)), writer=parsed(chain(2_000, INTEGER)))
    assert [each.kind for each in found.incompatible] == ["TYPE_CHANGED"]
    assert found.steps < 20_000
    assert len(found.incompatible[0].path) <= limits.PATH_CHARACTERS_MAX + 1


@pytest.mark.parametrize("criterion", ["anyOf", "oneOf"])
def test_mutually_recursive_variants(criterion):
    """Exponential, if pairs were not remembered."""
    found = differences(
        reader=parsed(mutual(30, NUMBER, criterion)), writer=parsed(mutual(30, INTEGER, criterion))
    )
    assert not found.incompatible
    assert found.steps < 60_000


def test_mutually_recursive_variants_that_all_differ():
    writer, reader = parsed(mutual(12, INTEGER)), parsed(mutual(12, STRING))
    found = differences(reader=reader, writer=writer)
    assert found.incompatible
    assert found.steps < limits.STEPS_MAX


def unlike(count, criterion, offset):
    branches = [
        properties(**{f"p{offset + number}": {"type": "string", "minLength": number + 1}})
        for number in range(count)
    ]
    return {criterion: branches}


HOSTILE = {
    "many branches that all differ": (unlike(400, "anyOf", 0), unlike(400, "anyOf", 10_000)),
    "many patterns and many names": (
        {**properties(True), "patternProperties": {f"^{number}$": STRING for number in range(300)}},
        properties(True, **{f"p{number}": STRING for number in range(300)}),
    ),
    "a large object against many branches": (
        wide(2_000, INTEGER),
        {"anyOf": [wide(1, {**STRING, "minLength": number + 1}) for number in range(100)]},
    ),
    "a large enum against many branches": (
        {"enum": list(range(20_000))},
        {"anyOf": [{"enum": [-number]} for number in range(1, 400)]},
    ),
    "a long text against many patterns": (
        {"definitions": {"long": {"enum": ["a" * 100_000]}}, **wide(40, {"$ref": "#/definitions/long"})},
        properties(True, **{f"p{number}": {**STRING, "pattern": f"b{number}"} for number in range(40)}),
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_schemas_are_refused_after_a_limited_number_of_steps(name):
    writer, reader = map(parsed, HOSTILE[name])
    with pytest.raises(TooCostly, match="takes more than 20000 steps"):
        differences(reader=reader, writer=writer, steps_max=20_000)


def test_callers_that_know_formats_only_see_an_invalid_schema():
    writer, reader = map(parsed, HOSTILE["a large enum against many branches"])
    with pytest.raises(InvalidSchema, match=f"more than {limits.STEPS_MAX} steps"):
        reader.incompatibilities(writer)


def test_equal_schemas_take_no_step():
    expensive = unlike(400, "oneOf", 0)
    assert steps(expensive, expensive) == 0


def test_a_default_that_many_properties_refer_to_is_kept_once():
    schema = parse(
        {"definitions": {"d": {"default": [[1] * 20] * 20}}, **wide(300, {"$ref": "#/definitions/d"})}, []
    )
    assert len(schema.defaults) == 300 and len(set(schema.defaults.values())) == 1


def test_values_of_defaults_are_limited():
    """Each takes two bytes as text, and kilobytes as a schema."""
    schema = parse(json.loads(json.dumps(wide(300, {"default": [1] * 99}))), [])
    assert len(schema.defaults) == limits.LITERALS_MAX // 100


def test_long_patterns_are_not_kept():
    before = patterns._compiled.cache_info().currsize
    assert patterns.matches("a" * 20_000, "a") is None
    assert patterns._compiled.cache_info().currsize == before
