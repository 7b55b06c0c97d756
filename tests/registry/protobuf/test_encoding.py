"""Encoded records, compared with the JSON mapping of a schema that protoc has compiled."""

import json
from typing import Any

import pytest
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from hypothesis import given
from hypothesis import strategies as st

from runnel.registry.codecs import parsed_codec
from runnel.registry.format import PROTOBUF, InvalidData
from runnel.registry.protobuf import write_message_indexes
from runnel.registry.protobuf.well_known import DESCRIPTORS
from tests.registry.protobuf.oracle import compile_proto

ORDERS = """
    syntax = "proto3"; package shop;
    import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto";
    message First { int32 number = 1; }
    message Order {
      map<string, Line> lines = 1;
      message Line { int64 line_count = 1; message Part { bytes raw = 1; } repeated Part parts = 2; }
      optional string note = 2; State state_now = 3; google.protobuf.Timestamp at = 4; double price = 5;
      oneof payment { string card = 6; bool cash = 7; }
      google.protobuf.UInt32Value limit = 8;
      Order previous = 9;
      repeated float rates = 10;
    }
    enum State { NEW = 0; PAID = 1; }
"""
CODEC = parsed_codec(PROTOBUF, ORDERS, ())
ORDER_INDEXES = (1,)


def protoc_class() -> Any:
    pool = DescriptorPool()
    for name in ("google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"):
        pool.AddSerializedFile(DESCRIPTORS[name])
    compiled = compile_proto(ORDERS)
    assert compiled is not None
    pool.AddSerializedFile(compiled.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


ORDER = protoc_class()

PARTS = st.fixed_dictionaries({}, optional={"raw": st.sampled_from(["", "/wA=", "AQID"])})
LINES = st.fixed_dictionaries(
    {},
    optional={
        "lineCount": st.integers(-(2**63), 2**63 - 1),
        "parts": st.lists(PARTS, max_size=2),
    },
)
FIELDS = {
    "lines": st.dictionaries(st.text(max_size=3), LINES, max_size=2),
    "note": st.text(max_size=5),
    "stateNow": st.sampled_from(["NEW", "PAID", 1, 7]),
    "at": st.sampled_from(["2023-11-14T22:13:20Z", "1970-01-01T00:00:00.5Z"]),
    "price": st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(["NaN", "-Infinity"]),
    "cash": st.booleans(),
    "limit": st.integers(0, 2**32 - 1),
    # protobuf prints the largest float rounded up, and then refuses it.
    "rates": st.lists(st.floats(-(2.0**127), 2.0**127, width=32), max_size=3),
}
ORDER_VALUES = st.recursive(
    st.fixed_dictionaries({}, optional=FIELDS),
    lambda inner: st.fixed_dictionaries({"previous": inner}, optional=FIELDS),
    max_leaves=3,
)


@given(ORDER_VALUES)
def test_records_are_those_of_protobuf(value):
    text = json.dumps(value)
    expected = json_format.Parse(text, ORDER()).SerializeToString(deterministic=True)
    data = CODEC.encode(text, "shop.Order")

    assert data == write_message_indexes(ORDER_INDEXES) + expected
    decoded = CODEC.decode(data)
    assert decoded.message == "shop.Order"
    assert CODEC.encode(json.dumps(decoded.value, allow_nan=False), decoded.message) == data


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(list(FIELDS)), inner),
        max_leaves=5,
    )
)
def test_any_value_is_encoded_or_refused(value):
    try:
        data = CODEC.encode(json.dumps(value), "Order")
    except InvalidData as refused:
        assert str(refused) and "\n" not in str(refused)
    else:
        decoded = CODEC.decode(data)
        assert CODEC.encode(json.dumps(decoded.value), decoded.message) == data


@pytest.mark.parametrize(
    ("name", "indexes"),
    [
        (None, (0,)),
        ("First", (0,)),
        ("shop.Order", (1,)),
        ("Order.Line", (1, 1)),
        ("shop.Order.Line.Part", (1, 1, 0)),
    ],
)
def test_message_is_chosen_by_its_name(name, indexes):
    data = CODEC.encode("{}", name)
    assert data == write_message_indexes(indexes)
    assert CODEC.decode(data).value is not None


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"price": "x"}, "at price: "),
        ({"lines": {"a": {"line_count": 2**63}}}, "at lines.line_count: Value out of range"),
        ({"previous": {"stateNow": "OLD"}}, "at previous.stateNow: Invalid enum value OLD"),
        ({"previous": {"prise": 1}}, 'at previous: Message type "shop.Order" has no field named "prise"'),
        ({"at": "yesterday"}, "at at: "),
        ({"card": "1", "cash": True}, "oneof"),
        ({"note": "\ud800"}, "at note: Unpaired surrogate"),
        ([], "an array is not a message shop.Order"),
        (None, "null is not a message shop.Order"),
        (5, "5 is not a message shop.Order"),
    ],
)
def test_problem_names_the_field(value, problem):
    with pytest.raises(InvalidData) as refused:
        CODEC.encode(json.dumps(value), "Order")
    assert problem in str(refused.value)
    assert "\n" not in str(refused.value)


def test_unknown_message():
    with pytest.raises(InvalidData) as refused:
        CODEC.encode("{}", "Nope")
    assert str(refused.value) == (
        "the schema has no message Nope; its messages are shop.First, shop.Order, shop.Order.Line, "
        "shop.Order.Line.Part"
    )


def test_missing_required_field():
    codec = parsed_codec(PROTOBUF, 'syntax = "proto2"; message A { required int32 n = 1; }', ())
    with pytest.raises(InvalidData, match="missing required"):
        codec.encode("{}")


def test_a_schema_without_messages():
    codec = parsed_codec(PROTOBUF, 'syntax = "proto3"; enum E { A = 0; }', ())
    with pytest.raises(InvalidData, match="no message with the indexes 0"):
        codec.encode("{}")


def nested(depth: int) -> str:
    return '{"previous":' * depth + "{}" + "}" * depth


def test_depth_is_limited():
    """What is encoded can be decoded."""
    assert CODEC.decode(CODEC.encode(nested(98), "Order"))
    for depth in (101, 200, 100_000):
        with pytest.raises(InvalidData):
            CODEC.encode(nested(depth), "Order")
