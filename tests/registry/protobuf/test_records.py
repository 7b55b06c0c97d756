"""Which message a record is, and its value, compared with confluent-kafka."""

import io
import json

import pytest
from confluent_kafka.schema_registry.common.protobuf import _create_index_array
from confluent_kafka.schema_registry.serde import SchemaId
from google.protobuf import json_format, message_factory
from hypothesis import given
from hypothesis import strategies as st

from runnel.registry.format import ReferencedSchema
from runnel.registry.protobuf import (
    FORMAT,
    Decoder,
    InvalidRecord,
    read_message_indexes,
    write_message_indexes,
)
from runnel.registry.protobuf.linking import SCHEMA_FILE

ORDERS = """
    syntax = "proto3"; package shop;
    import "google/protobuf/timestamp.proto"; import "google/protobuf/any.proto";
    message First {}
    message Order {
      map<string, Line> lines = 1;
      message Line { int64 count = 1; message Part { bytes raw = 1; } repeated Part parts = 2; }
      optional string note = 2; State state_now = 3; google.protobuf.Timestamp at = 4; double price = 5;
      oneof payment { string card = 6; bool cash = 7; }
      google.protobuf.Any any = 8;
      Order previous = 9;
    }
    enum State { NEW = 0; PAID = 1; }
"""
DECODER = Decoder(FORMAT.parse(ORDERS))


@given(
    indexes=st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=20).map(tuple),
    payload=st.binary(max_size=5),
)
def test_message_indexes_are_those_of_confluent(indexes, payload):
    written = SchemaId("PROTOBUF", schema_id=1, message_indexes=list(indexes)).id_to_bytes()
    ours = write_message_indexes(indexes)
    assert read_message_indexes(written + payload, position=5) == (indexes, len(written))
    assert read_message_indexes(ours + payload) == (indexes, len(ours))
    read = SchemaId("PROTOBUF")
    read.from_bytes(io.BytesIO(b"\0\0\0\0\1" + ours))
    assert read.message_indexes == list(indexes)


def test_first_message_is_one_byte():
    assert write_message_indexes((0,)) == b"\0"
    assert read_message_indexes(b"\0") == ((0,), 1)
    assert read_message_indexes(b"\x02\0") == ((0,), 2)


@pytest.mark.parametrize(
    "data", [b"", b"\x02", b"\x04\0", b"\x01", b"\xff\xff\xff\xff\x0f", b"\x80" * 20, b"\xfe\x7f"]
)
def test_wrong_message_indexes(data):
    with pytest.raises(InvalidRecord):
        read_message_indexes(data)


def test_message_of_indexes():
    schema = FORMAT.parse(ORDERS)
    decoder = Decoder(schema)
    pending = list(schema.link().FindFileByName(SCHEMA_FILE).message_types_by_name.values())
    for message in pending:
        assert decoder.message(tuple(_create_index_array(message))).full_name == message.full_name
        pending += message.nested_types
    assert len(pending) == 5
    assert decoder.message((1, 1, 0)).full_name == "shop.Order.Line.Part"


@pytest.mark.parametrize("indexes", [(2,), (-1,), (1, 2), (0, 0), ()])
def test_indexes_of_no_message(indexes):
    with pytest.raises(InvalidRecord):
        Decoder(FORMAT.parse(ORDERS)).message(indexes)


def test_file_that_only_makes_another_public():
    other = ReferencedSchema("orders.proto", ORDERS)
    decoder = Decoder(FORMAT.parse('syntax = "proto3"; import public "orders.proto";', [other]))
    assert decoder.message((1,)).full_name == "shop.Order"


def test_decoded_record():
    schema = FORMAT.parse(ORDERS)
    order = message_factory.GetMessageClass(schema.link().FindMessageTypeByName("shop.Order"))()
    order.lines["x"].count = 2**40
    order.lines["x"].parts.add(raw=b"\xff\0")
    order.at.seconds = 1_700_000_000
    order.card = "4711"
    order.state_now = 1
    order.previous.note = "ä"
    decoded = Decoder(schema).decode(order.SerializeToString(), (1,))
    assert decoded == {
        "lines": {"x": {"count": str(2**40), "parts": [{"raw": "/wA="}]}},
        "state_now": "PAID",
        "at": "2023-11-14T22:13:20Z",
        "price": 0.0,
        "card": "4711",
        "previous": {"note": "ä", "lines": {}, "state_now": "NEW", "price": 0.0},
    }
    assert json_format.Parse(json.dumps(decoded), type(order)()) == order


@pytest.mark.parametrize(
    "payload",
    [
        b"\xff",
        b"\x12\x01\xff",
        b"\x22\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x10\x05",
        b"\x42\x0a\x0a\x08a.b/c.No",
        b"\x4b" * 150,
        b"\x4a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
    ],
    ids=["no field", "not UTF-8", "no time", "unknown type", "groups", "length"],
)
def test_undecodable_record(payload):
    with pytest.raises(InvalidRecord, match=r"the payload cannot be decoded as shop\.Order"):
        Decoder(FORMAT.parse(ORDERS)).decode(payload, (1,))


def nested_orders(depth: int) -> bytes:
    payload = b""
    for _ in range(depth):
        length = bytes([len(payload) & 0x7F | 0x80, len(payload) >> 7])
        payload = b"\x4a" + length + payload
    return payload


def test_deep_record():
    """The limit of protobuf is a hundred levels."""
    assert DECODER.decode(nested_orders(99), (1,))["previous"]
    with pytest.raises(InvalidRecord):
        DECODER.decode(nested_orders(101), (1,))


@given(payload=st.binary(max_size=40))
def test_any_payload_is_decoded_or_refused(payload):
    try:
        json.dumps(DECODER.decode(payload, (1,)))
    except InvalidRecord as refused:
        assert str(refused)
