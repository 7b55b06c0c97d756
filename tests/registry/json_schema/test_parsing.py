"""What is a schema, what a reference leads to, and what is refused."""

import contextlib
import itertools
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.registry.format import InvalidSchema, ReferencedSchema
from runnel.registry.json_schema import FORMAT, differences, limits
from runnel.registry.json_schema.schema import Draft


def parsed(schema, *references):
    return FORMAT.parse(json.dumps(schema), references)


def reference(name, schema):
    return ReferencedSchema(name, json.dumps(schema))


DRAFTS = [
    (None, Draft.DRAFT_07),
    ("http://json-schema.org/draft-04/schema#", Draft.DRAFT_04),
    ("http://json-schema.org/schema#", Draft.DRAFT_04),
    ("http://json-schema.org/draft-06/schema", Draft.DRAFT_06),
    ("https://json-schema.org/draft-07/schema#", Draft.DRAFT_07),
    ("https://json-schema.org/draft/2019-09/schema", Draft.DRAFT_2019_09),
    ("http://json-schema.org/draft/2020-12/schema#", Draft.DRAFT_2020_12),
    ("https://example.com/my-own", Draft.DRAFT_07),
]


@pytest.mark.parametrize(("uri", "draft"), DRAFTS)
def test_the_draft_is_named_by_the_schema(uri, draft):
    assert parsed({"$schema": uri} if uri else {}).root.draft == draft


INVALID = [
    ("", "not JSON"),
    ("{", "not JSON"),
    ("nul", "not JSON"),
    ('{"maximum": NaN}', "NaN is not a number"),
    ('{"title": "a", "title": "b"}', "appears twice"),
    ('"string"', "/: A schema must be an object, true or false."),
    ("null", "must be an object"),
    ("[]", "must be an object"),
    ('{"title": "\\ud800"}', "surrogate"),
    ('{"maximum": 1e999999999999999999999}', "out of range"),
    ('{"maximum": 1e1001}', "out of range"),
    ('{"maximum": ' + "9" * 401 + "}", "401 digits"),
    ('{"type": "text"}', "/type: type must be"),
    ('{"type": []}', "/type: type must not be an empty array."),
    ('{"properties": []}', "/properties: properties must be an object."),
    ('{"properties": {"a/b": 1}}', "/properties/a~1b: A schema must be"),
    ('{"items": 3}', "/items: A schema must be"),
    ('{"required": true}', "/required: required must be an array of names."),
    ('{"required": [1]}', "array of names"),
    ('{"oneOf": []}', "/oneOf: oneOf must be an array that is not empty."),
    ('{"allOf": {}}', "array that is not empty"),
    ('{"enum": 1}', "/enum: enum must be an array."),
    ('{"pattern": 1}', "/pattern: pattern must be a string."),
    ('{"maxLength": -1}', "/maxLength: maxLength must be an integer that is not negative."),
    ('{"minItems": 1.5}', "minItems must be an integer"),
    ('{"maximum": "1"}', "/maximum: maximum must be a number."),
    ('{"maximum": null}', "must be a number"),
    ('{"multipleOf": 0}', "greater than zero"),
    ('{"exclusiveMaximum": true}', "of Draft-04"),
    ('{"uniqueItems": 1}', "uniqueItems must be true or false"),
    ('{"$id": 1}', "$id must be a string"),
    ('{"dependencies": {"a": 1}}', "/dependencies/a: A schema must be"),
    ('{"$ref": 1}', "$ref must be a string"),
    ('{"$ref": "#/definitions/a"}', '/$ref: "#/definitions/a" does not exist.'),
    ('{"$ref": "#a"}', '"#a" does not exist'),
    ('{"$ref": "#/required/0", "required": ["a"]}', "/required/0: A schema must be"),
    (
        '{"$ref": "http://example.com/a.json"}',
        "is not in the schema or its references, and is not fetched",
    ),
    ('{"$ref": "file:///etc/passwd"}', "is not fetched"),
    ('{"$ref": "#"}', "leads back to itself"),
    (
        '{"definitions": {"a": {"$ref": "#/definitions/b"}, "b": {"$ref": "#/definitions/a"}}}',
        "leads back to itself",
    ),
    (json.dumps({"$ref": "#" + "a" * 2_000}), "$ref has 2001 characters, at most 2000"),
    ('{"$ref": "http://[a"}', '$ref "http://[a" is not a URI.'),
    ('{"items": {"$id": "http://[a"}}', "is not a URI"),
    (json.dumps({"$id": "a" * 2_001}), "An id has 2001 characters"),
    ('{"allOf": [{"$ref": "#"}]}', "applies itself to the same value without end"),
    ('{"not": {"anyOf": [{"$ref": "#"}]}}', "without end"),
]


@pytest.mark.parametrize(("text", "problem"), INVALID)
def test_invalid_schemas_are_refused_with_position_and_reason(text, problem):
    with pytest.raises(InvalidSchema) as refused:
        FORMAT.parse(text)
    assert problem in str(refused.value)


def test_dynamic_anchors_in_two_schemas_are_refused():
    dialect = "https://json-schema.org/draft/2020-12/schema"
    other = reference("other", {"$schema": dialect, "$dynamicAnchor": "node"})
    with pytest.raises(InvalidSchema, match='dynamic anchor "node" is in two schemas'):
        parsed({"$schema": dialect, "$dynamicAnchor": "node", "items": {"$ref": "other"}}, other)


VALID = [
    True,
    False,
    {},
    {"$ref": "#/definitions/a", "definitions": {"a": {"properties": {"next": {"$ref": "#"}}}}},
    {"$ref": "#/components/schemas/a", "components": {"schemas": {"a": {"type": "string"}}}},
    {"$ref": "#/definitions/a~1b%25", "definitions": {"a/b%": True}},
    {"$ref": "#/$defs/a", "definitions": {"a": True}},
    {"$ref": "#/anyOf/1", "anyOf": [True, False]},
    {"definitions": {"a": {"$id": "#named", "type": "string"}}, "items": {"$ref": "#named"}},
    {"properties": {"$ref": {"type": "string"}, "$id": {"type": "string"}}},
    {"minLength": 2.0, "maximum": 1e300, "title": "", "unknown": {"type": 3}},
    {"$schema": "http://json-schema.org/draft-04/schema#", "id": "http://a/b", "definitions": {"c": {}},
     "items": {"$ref": "http://a/b#/definitions/c"}},
    {"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveAnchor": True,
     "items": {"$recursiveRef": "#"}},
]  # fmt: skip


@pytest.mark.parametrize("schema", VALID, ids=json.dumps)
def test_valid_schemas(schema):
    parsed(schema)


NAMES = [
    ("address.json", "address.json", {}),
    ("./address.json", "address.json", {}),
    ("address.json#", "address.json", {}),
    ("address.json#/definitions/city", "address.json", {}),
    ("http://example.com/address.json", "http://example.com/address.json", {}),
    ("address.json", "http://example.com/address.json", {"$id": "http://example.com/root.json"}),
    ("http://example.com/address.json", "address.json", {"$id": "http://example.com/root.json"}),
    ("urn:example:address", "urn:example:address", {}),
]


@pytest.mark.parametrize(("ref", "name", "root"), NAMES)
def test_references_are_found_by_name(ref, name, root):
    address = reference(name, {"type": "null", "definitions": {"city": {"type": "null"}}})
    schema = parsed({**root, "properties": {"a": {"$ref": ref}}}, address)
    assert schema.root.properties["a"].type_names == ("null",)


def test_references_of_references():
    city = reference("city.json", {"type": "boolean"})
    address = reference("address.json", {"properties": {"city": {"$ref": "city.json"}, "old": {"$ref": "#"}}})
    schema = parsed({"properties": {"a": {"$ref": "address.json"}}}, city, address)
    found = schema.root.properties["a"]
    assert found.properties["city"].type_names == ("boolean",)
    assert found.properties["old"] is found


def test_a_reference_is_found_by_its_own_id():
    address = reference("a-name", {"$id": "http://example.com/address.json", "type": "null"})
    schema = parsed({"items": {"$ref": "http://example.com/address.json"}}, address)
    assert schema.root.items is not None
    assert schema.root.items.type_names == ("null",)


def test_an_invalid_reference_is_named():
    with pytest.raises(InvalidSchema, match=r'"a\.json": The schema is not JSON'):
        parsed({}, ReferencedSchema("a.json", "{"))
    with pytest.raises(InvalidSchema, match=r'"a\.json" /type: type must be'):
        parsed({}, reference("a.json", {"type": 1}))


def nested(levels):
    return '{"not":' * levels + "true" + "}" * levels


def test_nesting_is_limited():
    FORMAT.parse(nested(limits.NESTING_MAX))
    for levels in (limits.NESTING_MAX + 1, 100_000):
        with pytest.raises(InvalidSchema, match="nests more than 100"):
            FORMAT.parse(nested(levels))
    with pytest.raises(InvalidSchema, match="nests more than 100"):
        FORMAT.parse("[" * 101 + "]" * 101)


def test_the_number_of_subschemas_is_limited():
    def with_properties(count):
        return {"properties": {str(number): True for number in range(count)}}

    parsed(with_properties(limits.SUBSCHEMAS_MAX - 1))
    with pytest.raises(InvalidSchema, match="more than 20000 subschemas"):
        parsed(with_properties(limits.SUBSCHEMAS_MAX))
    half = with_properties(limits.SUBSCHEMAS_MAX // 2)
    with pytest.raises(InvalidSchema, match="more than 20000 subschemas"):
        parsed(half, reference("other", half))


def test_ids_are_limited_joined_with_those_above():
    def nested(levels):
        schema: dict[str, object] = {"$id": "end"}
        for _ in range(levels):
            schema = {"$id": "a" * 500 + "/", "properties": {"n": schema}}
        return {"$id": "http://localhost/", "properties": {"n": schema}}

    parsed(nested(3))
    with pytest.raises(InvalidSchema, match="An id, joined"):
        parsed(nested(4))


def test_the_size_is_limited():
    text = json.dumps({"title": "a" * limits.TEXT_CHARACTERS_MAX})
    with pytest.raises(InvalidSchema, match="at most 1048576"):
        FORMAT.parse(text)
    small = json.dumps({"title": "a" * (limits.TEXT_CHARACTERS_MAX - 100)})
    with pytest.raises(InvalidSchema, match="references have"):
        FORMAT.parse("{}", [ReferencedSchema(str(number), small) for number in range(5)])


def test_a_long_chain_of_references_is_followed():
    count = 5_000
    definitions = {str(number): {"$ref": f"#/definitions/{number + 1}"} for number in range(count)}
    schema = parsed({"$ref": "#/definitions/0", "definitions": {**definitions, str(count): {"type": "null"}}})
    assert schema.root.type_names == ("null",)


KEYWORDS = re.findall(
    r"\S+",
    "$schema $id id $ref $anchor $dynamicRef $dynamicAnchor $recursiveRef $recursiveAnchor $defs definitions "
    "type enum const default title a allOf anyOf oneOf not if then else maximum minimum exclusiveMaximum "
    "exclusiveMinimum multipleOf maxLength minLength pattern items prefixItems additionalItems contains "
    "unevaluatedItems minContains maxContains minItems maxItems uniqueItems properties patternProperties "
    "additionalProperties unevaluatedProperties propertyNames required dependencies dependentRequired "
    "dependentSchemas minProperties maxProperties",
)
DIALECTS = [uri for uri, _ in DRAFTS if uri is not None]
WORDS = ["", "a", "#", "#a", "#/a", "#/items", "//[", "string", "object", "array", "(", "^a", *DIALECTS]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.sampled_from([0.5, 1e300]) | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYWORDS), inner, max_size=4),
    max_leaves=25,
)


@settings(max_examples=100, deadline=None)
@given(st.lists(ANYTHING, min_size=2, max_size=6))
def test_any_json_is_a_schema_or_is_refused(values):
    """And what is a schema can be compared with itself and others."""
    schemas = []
    for value in values:
        with contextlib.suppress(InvalidSchema):
            schemas.append(parsed(value))
    for writer, reader in itertools.product(schemas, schemas):
        found = differences(reader=reader, writer=writer)
        assert writer is not reader or not found.incompatible
