import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.registry.avro import FORMAT
from runnel.registry.avro.decoding import decode, shown
from runnel.registry.format import InvalidData
from tests.registry.avro.schemas import schemas, values_of


def as_json(value: Any) -> Any:
    """What fastavro reads, as it is shown."""
    match value:
        case bytes():
            return value.decode("latin-1")
        case dict():
            return {name: as_json(one) for name, one in value.items()}
        case list():
            return [as_json(one) for one in value]
        case float() if value - value != 0:
            return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    return value


@settings(max_examples=60)
@given(schemas(), st.data())
def test_values_are_those_that_fastavro_reads(schema, data):
    parsed = fastavro.parse_schema(schema)
    written = io.BytesIO()
    fastavro.schemaless_writer(written, parsed, data.draw(values_of(schema)))
    expected = fastavro.schemaless_reader(io.BytesIO(written.getvalue()), parsed, None)

    assert shown(FORMAT.parse(json.dumps(schema)).schema, written.getvalue()) == as_json(expected)


@settings(max_examples=100)
@given(schemas(), st.binary(max_size=40))
def test_any_bytes_are_decoded_or_refused(schema, data):
    try:
        json.dumps(decode(FORMAT.parse(json.dumps(schema)).schema, data))
    except InvalidData as error:
        assert str(error)


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        ({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x00"),
        (
            {"type": "array", "items": {"type": "record", "name": "R", "fields": []}},
            b"\xfe\xff\xff\xff\x0f\x00",
        ),
        ({"type": "record", "name": "L", "fields": [{"name": "n", "type": ["null", "L"]}]}, b"\x02" * 5000),
        ("string", b"\xfe\xff\xff\xff\x0f"),
        ("string", b"\x03"),
        ("long", b"\xff" * 20),
        ("int", b""),
        ("int", b"\x00\x00"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02"),
        (["null"], b"\x02"),
    ],
)
def test_hostile_data_is_refused_at_once(schema, data):
    with pytest.raises(InvalidData):
        decode(FORMAT.parse(json.dumps(schema)).schema, data)
