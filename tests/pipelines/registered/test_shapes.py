"""Schemas as types of Spark: values are encoded, and decoded as the same or a compatible schema has them."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_type

from runnel.pipelines.errors import BadOption
from runnel.pipelines.registered.schemas import RegisteredSchema
from runnel.pipelines.registered.shapes import shape_of
from runnel.registry.format import AVRO, JSON, PROTOBUF, InvalidData

AT = datetime(2026, 10, 1, 12, 0, 0, 123000, UTC)


def avro(*fields: dict[str, Any], name: str = "Order") -> RegisteredSchema:
    return RegisteredSchema(1, AVRO, json.dumps({"type": "record", "name": name, "fields": list(fields)}))


def proto(text: str) -> RegisteredSchema:
    return RegisteredSchema(2, PROTOBUF, f'syntax = "proto3";\n{text}')


def json_schema(**more: Any) -> RegisteredSchema:
    draft = "http://json-schema.org/draft-07/schema#"
    return RegisteredSchema(3, JSON, json.dumps({"$schema": draft, "type": "object", **more}))


def passed(written: RegisteredSchema, value: Any, read: RegisteredSchema, message: str | None = None) -> Any:
    """A value that one schema encodes and another one decodes, as a column has it."""
    data = shape_of(written, message).encode(value)
    reader = shape_of(read, message)
    kind = to_arrow_type(reader.type, timezone="UTC")
    decoded = reader.decoder(written.parsed(), kind)(data)
    return pa.array([decoded], kind).to_pylist(maps_as_pydicts="lossy")[0]


EVERY_AVRO = avro(
    {"name": "id", "type": "long"},
    {"name": "note", "type": ["null", "string"], "default": None},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}},
    {"name": "tags", "type": {"type": "map", "values": "int"}, "default": {}},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["SMALL", "BIG"]}},
)
EVERY_PROTO = proto(
    """
    package shop;
    import "google/protobuf/timestamp.proto";
    import "google/protobuf/struct.proto";
    import "google/protobuf/wrappers.proto";
    import "google/protobuf/duration.proto";
    enum Kind { SMALL = 0; BIG = 1; }
    message Tree { string name = 1; repeated Tree below = 2; }
    message Order {
      int64 id = 1; optional string note = 2; google.protobuf.Timestamp at = 3; uint64 big = 4;
      Kind kind = 5; map<string, int32> tags = 6; repeated Line lines = 7;
      google.protobuf.Struct extra = 8; google.protobuf.Int32Value count = 9; Tree tree = 10;
      double ratio = 11; bytes raw = 12; google.protobuf.Duration took = 13; map<bool, Line> flags = 14;
      oneof choice { string word = 15; int32 number = 16; }
      message Line { string item = 1; }
    }
    """
)
EVERY_JSON = json_schema(
    definitions={
        "line": {
            "type": "object",
            "properties": {"item": {"type": "string"}, "below": {"$ref": "#/definitions/line"}},
        }
    },
    properties={
        "id": {"type": "integer"},
        "note": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "at": {"type": "string", "format": "date-time"},
        "ratio": {"type": ["number", "null"]},
        "any": {},
        "tags": {"type": "object", "additionalProperties": {"type": "integer"}},
        "lines": {"type": "array", "items": {"$ref": "#/definitions/line"}},
        "kind": {"enum": ["SMALL", "BIG"]},
    },
    required=["id", "ratio"],
)
VALUES = [
    (
        EVERY_AVRO,
        None,
        "struct<id:bigint,note:string,at:timestamp,price:decimal(8,2),tags:map<string,int>,kind:string>",
        {"id": 1, "note": None, "at": AT, "price": Decimal("1.50"), "tags": {"a": 1}, "kind": "BIG"},
    ),
    (
        EVERY_PROTO,
        "Order",
        "struct<id:bigint,note:string,at:timestamp,big:decimal(20,0),kind:string,tags:map<string,int>,"
        "lines:array<struct<item:string>>,extra:string,count:int,"
        "tree:struct<name:string,below:array<string>>,ratio:double,raw:binary,took:string,"
        "flags:map<boolean,struct<item:string>>,word:string,number:int>",
        {
            "id": 1, "note": "x", "at": AT, "big": Decimal(2**64 - 1), "kind": "BIG", "tags": {"a": 1},
            "lines": [{"item": "tea"}], "extra": '{"a": [true, null]}', "count": 5,
            "tree": {"name": "root", "below": ['{"name": "leaf"}']}, "ratio": float("inf"),
            "raw": b"\x00\xff", "took": "1.500s", "flags": {True: {"item": "milk"}},
            "word": None, "number": 3,
        },
    ),
    (
        EVERY_JSON,
        None,
        "struct<id:bigint,note:string,at:timestamp,ratio:double,any:string,tags:map<string,bigint>,"
        "lines:array<struct<item:string,below:string>>,kind:string>",
        {
            "id": 1, "note": None, "at": AT, "ratio": None, "any": '{"x": 1}', "tags": {"a": 1},
            "lines": [{"item": "tea", "below": '{"item": "leaf"}'}], "kind": "SMALL",
        },
    ),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "message", "kind", "value"), VALUES, ids=[AVRO, PROTOBUF, JSON])
def test_a_value_passes_unchanged(schema, message, kind, value) -> None:
    assert shape_of(schema, message).type.simpleString() == kind
    assert passed(schema, value, schema, message) == value


ID = {"name": "id", "type": "int"}
NOTE = {"name": "note", "type": "string", "default": "-"}
EVOLUTIONS = [
    ("a field is added", avro(ID), {"id": 1}, avro(ID, NOTE), {"id": 1, "note": "-"}),
    ("a field is removed", avro(ID, NOTE), {"id": 1, "note": "x"}, avro(ID), {"id": 1}),
    ("a number is promoted", avro(ID), {"id": 1}, avro({"name": "id", "type": "double"}), {"id": 1.0}),
    (
        "a field is renamed, with an alias",
        avro(ID),
        {"id": 1},
        avro({"name": "number", "type": "int", "aliases": ["id"]}),
        {"number": 1},
    ),
    (
        "a field of several types is removed",
        avro(ID, {"name": "any", "type": ["string", "int"]}),
        {"id": 1, "any": "x"},
        avro(ID),
        {"id": 1},
    ),
    (
        "a Protobuf field is added",
        proto("message Order { int64 id = 1; }"),
        {"id": 1},
        proto("message Order { int64 id = 1; string note = 2; optional string word = 3; }"),
        {"id": 1, "note": "", "word": None},
    ),
    (
        "a Protobuf field is renamed, another message comes first",
        proto("message Other {} message Order { int64 id = 1; string note = 2; }"),
        {"id": 1, "note": "x"},
        proto("message Order { int64 number = 1; }"),
        {"number": 1},
    ),
    (
        "a member is added and one is removed",
        json_schema(properties={"id": {"type": "integer"}, "old": {"type": "string"}}),
        {"id": 1, "old": "x"},
        json_schema(properties={"id": {"type": "number"}, "new": {"type": "string"}}),
        {"id": 1.0, "new": None},
    ),
]


@pytest.mark.parametrize(
    ("written", "value", "read", "expected"),
    [row[1:] for row in EVOLUTIONS],
    ids=[row[0] for row in EVOLUTIONS],
)
def test_data_of_another_version_is_resolved(written, value, read, expected) -> None:
    assert passed(written, value, read, "Order" if read.type == PROTOBUF else None) == expected


@pytest.mark.parametrize(
    ("schema", "value", "reason"),
    [
        (avro(ID), {"id": "x"}, "id is <x>"),
        (avro(ID), {"id": 2**31}, "id is <2147483648>"),
        (avro(ID), {"id": 1, "idd": 2}, "idd"),
        (avro(ID), {}, "id"),
        (proto("message Order { int64 id = 1; }"), {"id": "x"}, "at id:"),
        (proto("message Order { int64 id = 1; }"), {"idd": 1}, 'no field named "idd"'),
        (json_schema(properties={"id": {"type": "integer"}}), {"id": "x"}, "at id:"),
        (json_schema(properties={"ratio": {}}), {"ratio": float("nan")}, "not JSON compliant"),
        (json_schema(), {"price": Decimal("12345678901234567.89")}, "more digits than a number of JSON"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(schema, value, reason) -> None:
    with pytest.raises(InvalidData, match=reason):
        shape_of(schema, None).encode(value)


def test_types_without_a_column() -> None:
    with pytest.raises(BadOption, match="union of 2 types"):
        assert shape_of(avro({"name": "any", "type": ["string", "int"]}), None).type
    with pytest.raises(BadOption, match="has no message Other; its messages are Order"):
        shape_of(proto("message Order { int64 id = 1; }"), "Other")


def test_data_that_could_expand_without_end_is_refused() -> None:
    endless = avro(ID, {"name": "nothing", "type": {"type": "array", "items": "null"}})
    with pytest.raises(InvalidData, match="items without any bytes"):
        shape_of(avro(ID), None).decoder(endless.parsed(), pa.null())


MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
NESTED = {"type": "record", "name": "N", "fields": [{"name": "a", "type": "int", "default": 1}]}


@pytest.mark.parametrize(
    ("written", "read", "reason"),
    [
        ([{"name": "at", "type": "long"}], [{"name": "at", "type": MILLIS}], "at was written as no logical"),
        ([{"name": "at", "type": MILLIS}], [{"name": "at", "type": "long"}], "at was written as timestamp"),
        ([{"name": "at", "type": MILLIS}], [{"name": "at", "type": ["null", MICROS]}], None),
        ([ID], [ID, {"name": "at", "type": MILLIS, "default": 1}], "at was not written"),
        ([ID], [ID, {"name": "at", "type": ["null", MILLIS], "default": None}], None),
        ([ID], [ID, {"name": "raw", "type": "bytes", "default": "\u00ff"}], "raw was not written"),
        ([ID], [ID, {"name": "n", "type": NESTED, "default": {}}], "n was not written"),
        ([ID], [ID, {"name": "n", "type": NESTED, "default": {"a": 2}}], None),
        ([ID], [ID, {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []}], None),
    ],
)
def test_differences_that_would_be_misread_are_refused(written, read, reason) -> None:
    reader = shape_of(avro(*read), None)
    if reason is None:
        reader.decoder(avro(*written).parsed(), pa.null())
        return
    with pytest.raises(InvalidData, match=reason):
        reader.decoder(avro(*written).parsed(), pa.null())


FLAGS = {"name": "flags", "type": {"type": "array", "items": "boolean"}}
CHAIN = {"type": "record", "name": "Link", "fields": [{"name": "next", "type": ["null", "Link"]}]}


@pytest.mark.parametrize(
    ("written", "data"),
    [
        ([ID, FLAGS], b"\x02" + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"),
        ([ID, {"name": "note", "type": "string"}], b"\x02\x10abc"),
        ([ID, {"name": "chain", "type": CHAIN}], b"\x02" + b"\x02" * 900_000),
    ],
    ids=["items that are not there", "cut text", "a deep chain"],
)
def test_what_only_the_writer_has_is_checked_as_well(written, data) -> None:
    decode = shape_of(avro(ID), None).decoder(avro(*written).parsed(), pa.null())
    with pytest.raises(InvalidData):
        decode(data)


def test_a_message_of_another_name_is_refused() -> None:
    both = proto("message Order { int64 id = 1; } message Other { int64 id = 1; }")
    data = shape_of(both, "Other").encode({"id": 1})
    with pytest.raises(InvalidData, match="it is a message Other, not Order"):
        shape_of(both, "Order").decoder(both.parsed(), pa.null())(data)
