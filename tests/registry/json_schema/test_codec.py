"""Messages of JSON schemas."""

import builtins
import importlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runnel.registry.codecs import parsed_codec
from runnel.registry.format import JSON, InvalidData, ReferencedSchema
from runnel.registry.json_schema import FORMAT
from runnel.registry.json_schema.validation import Validation

ORDER = {
    "$id": "http://shop.example/order.json",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "lines": {"type": "array", "items": {"$ref": "line.json#/definitions/line"}},
        "name": {"type": "string", "pattern": "^[a-z]+$"},
    },
    "required": ["id"],
}
LINE = ReferencedSchema(
    "line.json", json.dumps({"definitions": {"line": {"type": "object", "required": ["price"]}}})
)
CODEC = parsed_codec(JSON, json.dumps(ORDER), [LINE])
ANY = parsed_codec(JSON, "true", ())


@pytest.mark.parametrize(
    "text",
    [
        '{"id": 1, "lines": [{"price": 1.10}]}',
        '{ "id":1e2, "name":"\\u0061" }',
        '{"id": 1, "ä": null}',
        '{"id": 12345678901234567890, "lines": [{"price": -0.0}, {"price": 1.7976931348623157e308}]}',
    ],
)
def test_text_is_sent_as_it_is(text):
    assert CODEC.encode(text) == text.encode()
    assert CODEC.decode(text.encode()).value == json.loads(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"id": "x"}', "at id: 'x' is not of type 'integer'"),
        ('{"id": 1, "lines": [{"price": 1}, {}]}', "at lines[1]: 'price' is a required property"),
        ("{}", "'id' is a required property"),
        ("5", "5 is not of type 'object'"),
        ('{"id": 1, "name": "A"}', "at name: 'A' does not match '^[a-z]+$'"),
        ('{"id": 1', "it is not JSON: Expecting ',' delimiter: line 1 column 9 (char 8)"),
    ],
)
def test_text_that_does_not_fit(text, problem):
    with pytest.raises(InvalidData) as refused:
        CODEC.encode(text)
    assert str(refused.value) == problem


@pytest.mark.parametrize("data", [b"", b"\xff", b"NaN", b"1e999", b"[" * 100_000, b"{}{}"])
def test_data_that_is_not_json(data):
    with pytest.raises(InvalidData):
        ANY.decode(data)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b'{"price": 0.12345678901234567890}', "0.12345678901234567890 has more digits"),
        (b'{"price": 1e-400}', "1e-400 has more digits"),
        (b'{"id": 1, "id": 2}', '"id" occurs twice'),
    ],
)
def test_data_that_a_copy_would_change(data, problem):
    with pytest.raises(InvalidData, match=problem):
        ANY.decode(data)
    # People may look at it.
    assert ANY.shown(data)


@given(st.binary(max_size=20) | st.text(max_size=20).map(json.dumps).map(str.encode))
def test_any_data_is_decoded_or_refused(data):
    try:
        value = ANY.decode(data).value
    except InvalidData as refused:
        assert str(refused)
    else:
        assert json.loads(ANY.encode(json.dumps(value))) == value


@pytest.mark.parametrize(
    "draft",
    [
        "http://json-schema.org/draft-04/schema#",
        "http://json-schema.org/draft-06/schema#",
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2020-12/schema",
    ],
)
def test_drafts(draft):
    schema = {"$schema": draft, "properties": {"line": {"$ref": "line.json#/definitions/line"}}}
    codec = parsed_codec(JSON, json.dumps(schema), [LINE])

    assert codec.encode('{"line": {"price": 1}}')
    with pytest.raises(InvalidData, match="at line: 'price' is a required property"):
        codec.encode('{"line": {}}')


def test_without_a_validator_values_are_not_validated(monkeypatch):
    def missing(name, package=None):
        if name.startswith("jsonschema"):
            raise ImportError(name)
        return builtins.__import__(name)

    monkeypatch.setattr("runnel.registry.json_schema.validation.import_module", missing)
    validation = Validation(FORMAT.parse('{"type": "string"}'))
    validation.check(5)
    assert not validation.is_available
    monkeypatch.setattr("runnel.registry.json_schema.validation.import_module", importlib.import_module)
    assert Validation(FORMAT.parse('{"type": "string"}')).is_available
