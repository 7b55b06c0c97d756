"""Framing as confluent-kafka writes and reads it."""

import io

import pytest
from confluent_kafka.schema_registry.serde import SchemaId
from hypothesis import given
from hypothesis import strategies as st

from runnel.registry.framing import NotFramed, framed, unframed


@given(st.integers(1, 2**31 - 1), st.binary(max_size=20))
def test_framing_is_that_of_confluent(schema_id, data):
    assert framed(schema_id, data) == SchemaId("AVRO", schema_id=schema_id).id_to_bytes() + data
    assert unframed(framed(schema_id, data)) == (schema_id, data)
    read = SchemaId("AVRO")
    assert read.from_bytes(io.BytesIO(framed(schema_id, data))).read() == data
    assert read.id == schema_id


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"\0\0\0\0", b"\1\0\0\0\1", b"text!", b"\0\0\0\0\0", b"\0\xff\xff\xff\xff"]
)
def test_other_bytes_are_not_framed(data):
    with pytest.raises(NotFramed):
        unframed(data)
