import json

import pytest
from hypothesis import given

from runnel.registry.avro import FORMAT, STORED_FORMAT
from runnel.registry.avro.limits import (
    DEFAULT_CHECKS_MAX,
    DEPTH_MAX,
    NAME_CHARACTERS_MAX,
    NODES_MAX,
    TEXT_CHARACTERS_MAX,
    TEXTS_CHARACTERS_MAX,
)
from runnel.registry.format import InvalidSchema, ReferencedSchema
from tests.registry.avro.schemas import schemas

RECORD = '{"type":"record","name":"R","namespace":"n","fields":[{"name":"a","type":"int"}]}'

# Texts, and how Java's library prints them.
PRINTED = [
    ('"string"', '"string"'),
    ('{"type": "string"}', '"string"'),
    ('{"type": {"type": "string"}}', '"string"'),
    ('{"logicalType": "date", "type": "int"}', '{"type":"int","logicalType":"date"}'),
    ('["null", {"type": "long"}]', '["null","long"]'),
    ('{"name": "n.R", "fields": [{"type": "int", "name": "a"}], "type": "record"}', RECORD),
    (
        '{"type":"record","name":"R","namespace":"n","fields":[{"name":"e",'
        '"type":{"type":"enum","name":"n.E",'
        '"symbols":["A"],"default":"A","x":1,"aliases":["n.F",'
        '"m.G"]}},{"name":"f","type":"n.E","default":"A"}]}',
        '{"type":"record","name":"R","namespace":"n","fields":[{"name":"e","type":{"type":"enum","name":"E",'
        '"symbols":["A"],"default":"A","x":1,"aliases":["F","m.G"]}},{"name":"f","type":"E","default":"A"}]}',
    ),
    (
        '{"aliases":["b"],"fields":[{"order":"descending","aliases":["c"],'
        '"default":null,"name":"a","doc":"d",'
        '"type":["null","int"],"p":{"z":1,"a":2}}],"doc":"of R","name":"R","type":"record"}',
        '{"type":"record","name":"R","doc":"of R","fields":[{"name":"a","type":["null","int"],"doc":"d",'
        '"default":null,"order":"descending","aliases":["c"],"p":{"z":1,"a":2}}],"aliases":["b"]}',
    ),
    (
        '{"type":"record","name":"n.R","fields":[{"name":"a",'
        '"type":{"type":"fixed","name":"F","namespace":"","size":2}}]}',
        '{"type":"record","name":"R","namespace":"n","fields":[{"name":"a","type":{"type":"fixed","name":"F",'
        '"namespace":"","size":2}}]}',
    ),
]

SAME = [
    ('"string"', '{"type":"string"}'),
    (RECORD, '{"name":"n.R","type":"record","fields":[{"type":{"type":"int"},"name":"a"}]}'),
    (RECORD, RECORD.replace('"type":"int"', '"order":"ascending","type":"int","aliases":[]')),
    ('{"type":"int","a":1,"b":2}', '{"b":2,"type":"int","a":1}'),
    (
        '{"type":"fixed","name":"F","size":1,"aliases":["b","a"]}',
        '{"type":"fixed","name":"F","size":1,"aliases":["a","b"]}',
    ),
]
DIFFERENT = [
    ('"string"', '"bytes"'),
    ('{"type":"int","logicalType":"date"}', '"int"'),
    (RECORD, RECORD.replace('"name":"a"', '"name":"a","doc":"x"')),
    (RECORD, RECORD.replace('"name":"a"', '"name":"a","default":1')),
    ('["null","int"]', '["int","null"]'),
    ('{"type":"string","avro.java.string":"String"}', '"string"'),
]

INVALID = [
    ("", "not JSON"),
    ("string", "not JSON"),
    ("{", "not JSON"),
    ("NaN", "not a number"),
    ('{"type":"int","type":"long"}', "occurs twice"),
    ("1", "not 1"),
    ("null", "not null"),
    ("{}", "the type is missing"),
    ('"unknown"', '"unknown" is not defined'),
    ('{"type":"recrod"}', '"recrod" is not defined'),
    ('{"type":"array"}', "items of the array is missing"),
    ('{"type":"map"}', "values of the map is missing"),
    ('[["int"]]', "cannot contain a union"),
    ('["int","int"]', '"int" occurs twice'),
    ('[{"type":"array","items":"int"},{"type":"array","items":"long"}]', '"array" occurs twice'),
    ('{"type":"record","fields":[]}', "name of the record is missing"),
    ('{"type":"record","name":"R"}', "no list of fields"),
    ('{"type":"record","name":"R","fields":{}}', "no list of fields"),
    ('{"type":"record","name":"R","fields":[1]}', "at /fields/0: a field is an object"),
    ('{"type":"record","name":"R","fields":[{"type":"int"}]}', "name of the field is missing"),
    ('{"type":"record","name":"R","fields":[{"name":"a"}]}', 'type of field "a" is missing'),
    ('{"type":"record","name":"1R","fields":[]}', "not a name"),
    ('{"type":"record","name":"R","namespace":"a-b","fields":[]}', "not a name"),
    ('{"type":"record","name":"R","fields":[{"name":"a b","type":"int"}]}', "not a name"),
    (
        '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}',
        "two fields",
    ),
    ('{"type":"record","name":"R","fields":[{"name":"a","type":"int","order":"up"}]}', "order"),
    ('{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":"x"}]}', "not of type int"),
    (
        '{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":2147483648}]}',
        "not of type int",
    ),
    (
        '{"type":"record","name":"R","fields":[{"name":"a","type":["null","int"],"default":"x"}]}',
        "none of the union",
    ),
    (
        '{"type":"record","name":"R","fields":[{"name":"a","type":{"type":"array",'
        '"items":"int"},"default":{}}]}',
        "not an array",
    ),
    ('{"type":"enum","name":"E"}', "symbols is a list"),
    ('{"type":"enum","name":"E","symbols":["a","a"]}', "symbol twice"),
    ('{"type":"enum","name":"E","symbols":["a-b"]}', "not a name"),
    ('{"type":"enum","name":"E","symbols":["a"],"default":"b"}', "not a symbol"),
    ('{"type":"fixed","name":"F"}', "size"),
    ('{"type":"fixed","name":"F","size":-1}', "size"),
    ('{"type":"fixed","name":"F","size":true}', "size"),
    (
        '[{"type":"fixed","name":"F","size":1},{"type":"record",'
        '"name":"G","fields":[{"name":"a","type":{"type":"fixed","name":"F","size":1}}]}]',
        "defined already",
    ),
    ('{"type":"fixed","name":"int","size":1}', "defined already"),
]


@pytest.mark.parametrize(("text", "expected"), PRINTED)
def test_text_is_printed_as_java_does(text, expected):
    schema = FORMAT.parse(text)

    assert schema.text == expected
    assert FORMAT.parse(expected).text == expected


@pytest.mark.parametrize(("one", "other"), SAME)
def test_same_identity(one, other):
    assert FORMAT.parse(one).identity == FORMAT.parse(other).identity


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_different_identity(one, other):
    assert FORMAT.parse(one).identity != FORMAT.parse(other).identity


@pytest.mark.parametrize(("text", "message"), INVALID)
def test_invalid(text, message):
    with pytest.raises(InvalidSchema, match=message):
        FORMAT.parse(text)


def test_normalized_text_has_full_names_and_sorted_properties():
    text = (
        '{"type":"record","name":"R","namespace":"n","z":1,"b":{"y":1,"x":2},'
        '"fields":[{"name":"a","type":["null","R"]}]}'
    )

    assert FORMAT.parse(text).normalized() == (
        '{"name":"n.R","type":"record","fields":[{"name":"a","type":["null","n.R"]}],"b":{"x":2,"y":1},"z":1}'
    )


@given(schemas())
def test_printed_and_normalized_texts_parse_to_the_same_schema(schema):
    first = FORMAT.parse(json.dumps(schema, indent=1))

    assert FORMAT.parse(first.text).identity == first.identity
    assert FORMAT.parse(first.text).text == first.text
    assert FORMAT.parse(first.normalized()).identity == first.identity


def test_references_are_used_by_name_and_resolved_on_request():
    referenced = ReferencedSchema("n.R", RECORD)
    text = '{"type":"record","name":"S","fields":[{"name":"r","type":"n.R"},{"name":"q","type":"n.R"}]}'
    schema = FORMAT.parse(text, [referenced])

    assert schema.text == text
    assert schema.formatted("resolved") == text.replace('"n.R"', RECORD, 1)
    assert schema.formatted("") == text
    with pytest.raises(InvalidSchema, match="is not defined"):
        FORMAT.parse(text)


def test_references_take_part_in_compatibility():
    text = '{"type":"record","name":"S","fields":[{"name":"r","type":"n.R"}]}'
    reader = FORMAT.parse(text, [ReferencedSchema("n.R", RECORD)])
    writer = FORMAT.parse(text, [ReferencedSchema("n.R", RECORD.replace('"int"', '"string"'))])

    [finding] = reader.incompatibilities(writer)

    assert finding.path == "/fields/0/type/fields/0/type"
    assert finding.message == "field a: the reader's type int cannot read the writer's type string"


FIXED = {"type": "fixed", "name": "f", "size": 1}


def test_stored_schemas_may_have_names_and_defaults_that_are_not_valid():
    text = '{"type":"record","name":"a-b","fields":[{"name":"1","type":"int","default":"x"}]}'

    assert STORED_FORMAT.parse(text).text == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * (DEPTH_MAX + 2) + "]" * (DEPTH_MAX + 2), "deeper"),
        ("[" * 100_000, "deeper"),
        ('{"type":"array","items":' * 200 + '"int"' + "}" * 200, "deeper"),
        ('"' + "a" * TEXT_CHARACTERS_MAX + '"', "characters"),
        (
            '{"type":"record","name":"R","fields":['
            + ",".join(f'{{"name":"f{number}","type":[]}}' for number in range(NODES_MAX))
            + "]}",
            "types and fields",
        ),
        (json.dumps({**FIXED, "aliases": ["a"] * NODES_MAX}), "types and fields"),
        (
            json.dumps(
                {
                    "type": "record",
                    "name": "R",
                    "fields": [{"name": "f", "type": "int", "aliases": ["a"] * NODES_MAX}],
                }
            ),
            "types and fields",
        ),
        (json.dumps({**FIXED, "namespace": "a" * NAME_CHARACTERS_MAX}), "a name has at most"),
        (json.dumps({**FIXED, "name": "a." + "a" * NAME_CHARACTERS_MAX}), "a name has at most"),
    ],
    ids=[
        "brackets",
        "open brackets",
        "arrays",
        "text",
        "fields",
        "aliases",
        "aliases of fields",
        "namespace",
        "name",
    ],
)
def test_limits(text, message):
    """Those of names hold for stored schemas, too: every type of a namespace repeats it."""
    for each in (FORMAT, STORED_FORMAT):
        with pytest.raises(InvalidSchema, match=message):
            each.parse(text)


def test_references_are_limited_together():
    long = ReferencedSchema("r", " " * TEXT_CHARACTERS_MAX)
    with pytest.raises(InvalidSchema, match="references have"):
        FORMAT.parse('"int"', [long] * (TEXTS_CHARACTERS_MAX // TEXT_CHARACTERS_MAX + 1))


def test_the_defaults_of_all_fields_share_a_limit():
    branches = [{"type": "fixed", "name": f"f{number}", "size": 9} for number in range(300)]
    union = {"type": "record", "name": "U", "fields": [{"name": "u", "type": [*branches, "null"]}]}

    def fields(count):
        own = [{"name": f"f{number}", "type": "U", "default": {"u": None}} for number in range(count)]
        return json.dumps([union, {"type": "record", "name": "R", "fields": own}])

    FORMAT.parse(fields(100))
    with pytest.raises(InvalidSchema, match="too complex"):
        FORMAT.parse(fields(DEFAULT_CHECKS_MAX // 300))


def test_the_default_of_a_union_of_similar_records_is_checked_in_bounded_time():
    branches = [
        {"type": "record", "name": f"R{number}", "fields": [{"name": "f", "type": "Any"}]}
        for number in range(10)
    ]
    holder = {"type": "record", "name": "Any", "fields": [{"name": "u", "type": ["null", "int", *branches]}]}
    value: object = "neither"
    for _ in range(20):
        value = {"f": {"u": value}}
    text = json.dumps(
        {"type": "record", "name": "Top", "fields": [{"name": "a", "type": holder, "default": {"u": value}}]}
    )

    with pytest.raises(InvalidSchema, match="default"):
        FORMAT.parse(text)
