"""Stored text, identity and normalized text."""

import json
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.registry.json_schema import FORMAT

SAME = [
    ('{"type": "string", "title": "a"}', '{"title":"a","type":"string"}'),
    ('{"maximum": 1}', '{"maximum": 1.0}'),
    ('{"maximum": 100}', '{"maximum": 1e2}'),
    ('{"maximum": -0.0}', '{"maximum": 0}'),
    ('{"maximum": 0.10}', '{"maximum": 1E-1}'),
    ('{"title": "\\u00e9\\/"}', '{"title": "é/"}'),
]

OTHER = [
    ('{"required": ["a", "b"]}', '{"required": ["b", "a"]}'),
    ('{"const": true}', '{"const": 1}'),
    ('{"const": "1"}', '{"const": 1}'),
    ('{"maximum": 9007199254740993}', '{"maximum": 9007199254740992}'),
    ('{"maximum": 0.1}', '{"maximum": 0.1000000000000000000000000000000000000000000001}'),
    ('{"minimum": -1}', '{"minimum": -2}'),
    ('{"maximum": 1e400}', '{"maximum": 1e401}'),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_equal_schemas_have_one_identity(one, other):
    assert FORMAT.parse(one).identity == FORMAT.parse(other).identity
    assert FORMAT.parse(one).normalized() == FORMAT.parse(other).normalized()


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_different_schemas_have_different_identities(one, other):
    assert FORMAT.parse(one).identity != FORMAT.parse(other).identity


def test_the_stored_text_is_the_given_one_without_blanks():
    schema = FORMAT.parse('{ "type" : "string",\r\n\t"title": "a \\" b :  c\\\\" , "maximum": 1.0 }')
    assert schema.text == '{"type":"string","title":"a \\" b :  c\\\\","maximum":1.0}'
    assert schema.formatted("serialized") == schema.text
    assert FORMAT.parse(schema.text).text == schema.text
    assert schema.normalized() == '{"maximum":1,"title":"a \\" b :  c\\\\","type":"string"}'


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


def exact(text):
    return json.loads(text, parse_int=Decimal, parse_float=Decimal)


@settings(max_examples=60, deadline=None)
@given(JSON, st.integers(0, 3))
def test_texts_mean_what_was_given(value, indent):
    schema = FORMAT.parse(json.dumps({"default": value}, indent=indent or None))
    assert json.loads(schema.text) == {"default": value}
    assert exact(schema.normalized()) == exact(schema.text)
    assert FORMAT.parse(schema.normalized()).identity == schema.identity
