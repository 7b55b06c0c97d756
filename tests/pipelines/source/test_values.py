"""Decoded values: whole columns and single values are decoded alike."""

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from runnel.pipelines.errors import BadOption
from runnel.pipelines.source.avro_values import AvroDecoder, spark_type
from runnel.pipelines.source.columns import RowBuilder, table_schema
from runnel.pipelines.source.json_values import CHUNK_VALUES, JsonDecoder
from runnel.pipelines.source.options import read_options
from runnel.pipelines.source.values import decode_each, decode_strings

ORDER = pa.struct(
    [
        ("id", pa.int64()),
        ("count", pa.int8()),
        ("name", pa.string()),
        ("price", pa.float64()),
        ("paid", pa.bool_()),
        ("tags", pa.list_(pa.string())),
        ("address", pa.struct([("street", pa.string())])),
    ]
)

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-200, 200), st.integers(), st.floats(allow_nan=False), st.text()
)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)
orders = st.fixed_dictionaries(
    {},
    optional={
        "id": st.none() | st.integers(-(2**63), 2**63 - 1),
        "count": st.none() | st.integers(-128, 127),
        "name": st.none() | st.text(alphabet=st.characters(exclude_categories=["Cs"])),
        "price": st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-1000, 1000),
        "paid": st.none() | st.booleans(),
        "tags": st.none() | st.lists(st.none() | st.text(max_size=3, alphabet="ab")),
        "address": st.none()
        | st.fixed_dictionaries({}, optional={"street": st.text(max_size=3, alphabet="ab")}),
        "more": anything,
    },
)


def column(*values: object) -> pa.BinaryArray:
    texts = [
        value if value is None or isinstance(value, bytes) else json.dumps(value).encode() for value in values
    ]
    return pa.array(texts, pa.binary())


@settings(deadline=None)
@given(st.lists(st.none() | orders, min_size=1, max_size=5))
def test_whole_columns_equal_single_values(values) -> None:
    decoder = JsonDecoder(ORDER)
    texts = column(*values)
    fast = decoder._decode_whole(texts)
    careful = decode_each(texts, ORDER, decoder.decode_one)
    assert fast is not None, "valid values are read at once"
    assert fast.values.to_pylist() == careful.values.to_pylist()
    assert careful.errors.null_count == len(values) and fast.errors.null_count == len(values)
    fast.values.validate(full=True)


@settings(deadline=None)
@given(
    st.lists(
        st.binary(max_size=6) | anything.map(lambda one: json.dumps(one).encode()) | st.just(b"{}"),
        max_size=6,
    )
)
def test_each_value_is_decoded_independently(texts: list[bytes]) -> None:
    together = JsonDecoder(ORDER).decode(pa.array(texts, pa.binary()))
    assert len(together.values) == len(together.errors) == len(together.raw) == len(texts)
    for index, text in enumerate(texts):
        alone = JsonDecoder(ORDER).decode(column(text))
        assert together.values[index] == alone.values[0]
        assert (together.errors[index].as_py() is None) == (alone.errors[0].as_py() is None)
        assert together.raw[index].as_py() == (None if together.errors[index].as_py() is None else text)


@pytest.mark.parametrize(
    "texts",
    [
        [b'{"id": 1', b"}", b"{}{}"],
        [b'{"id": 1}{"id": 2}', b""],
        [b'{"name": "', b'"}', b"{} {}"],
        [b'{"id": 1},"id": 2', b"{}"],
        [b'{"address": {"street": "}', b'{"}}', b"{}{}"],
    ],
)
def test_incomplete_values_do_not_combine(texts: list[bytes]) -> None:
    decoded = JsonDecoder(ORDER).decode(pa.array(texts, pa.binary()))
    wrong = [index for index, text in enumerate(texts) if text != b"{}"]
    assert [index for index, error in enumerate(decoded.errors.to_pylist()) if error] == wrong


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"id": "x"}', 'value.id is "x", not an integer'),
        (b'{"id": 1.0}', "value.id is 1.0, not an integer"),
        (b'{"id": true}', "value.id is true"),
        (b'{"count": 128}', "value.count is 128, too large for 8 bits"),
        (b'{"name": 5}', "value.name is 5, not a string"),
        (b'{"paid": 1}', "not true or false"),
        (b'{"tags": ["a", 1]}', "value.tags[] is 1, not a string"),
        (b'{"address": []}', "value.address is [], not an object"),
        (b"[]", "value is [], not an object"),
        (b"", "not JSON: Expecting value"),
        (b"{", "not JSON"),
        (b"\xff", "not UTF-8: invalid start byte at byte 0"),
        (b'{"name": "\\ud800"}', "cannot be stored"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_wrong_is_reported(text: bytes, message: str) -> None:
    decoded = JsonDecoder(ORDER).decode(column({"id": 1}, text))
    assert decoded.values.to_pylist()[0]["id"] == 1
    assert decoded.values[1].as_py() is None
    assert message in decoded.errors[1].as_py()
    assert decoded.raw.to_pylist() == [None, text]


def test_one_malformed_value_among_many() -> None:
    values: list[object] = [{"id": number} for number in range(3 * CHUNK_VALUES)]
    values[CHUNK_VALUES + 5] = b"{"
    decoded = JsonDecoder(ORDER).decode(column(*values))
    assert [value and value["id"] for value in decoded.values.to_pylist()] == [
        None if number == CHUNK_VALUES + 5 else number for number in range(3 * CHUNK_VALUES)
    ]
    assert decoded.errors.null_count == 3 * CHUNK_VALUES - 1


def test_types_that_arrow_does_not_read() -> None:
    kind = to_arrow_type(
        StructType(
            [
                StructField("at", TimestampType()),
                StructField("day", DateType()),
                StructField("sum", DecimalType(10, 2)),
                StructField("names", MapType(StringType(), IntegerType())),
            ]
        ),
        timezone="UTC",
    )
    decoded = JsonDecoder(kind).decode(
        column(
            {"at": "2026-01-02T03:04:05.678Z", "day": "2026-01-02", "sum": "12.345", "names": {"a": 1}},
            {"at": "2026-01-02 03:04:05", "sum": 7},
            {"at": 5},
            {"day": "soon"},
            {"sum": "much"},
        )
    )
    first, second = decoded.values.to_pylist()[:2]
    assert first["at"] == datetime(2026, 1, 2, 3, 4, 5, 678000, UTC) and first["day"] == date(2026, 1, 2)
    assert first["sum"] == Decimal("12.34") and first["names"] == [("a", 1)]
    assert second["at"] == datetime(2026, 1, 2, 3, 4, 5, 0, UTC) and second["sum"] == Decimal("7.00")
    assert [bool(error) for error in decoded.errors.to_pylist()] == [False, False, True, True, True]


def test_strings() -> None:
    assert decode_strings(column(b"tea", None, "é".encode())).values.to_pylist() == ["tea", None, "é"]
    decoded = decode_strings(column(b"tea", b"\xff", None))
    assert decoded.values.to_pylist() == ["tea", None, None]
    assert decoded.errors.to_pylist() == [None, "not UTF-8: invalid start byte at byte 0", None]
    assert decoded.raw.to_pylist() == [None, b"\xff", None]


AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "PAID"]}},
        {"name": "before", "type": "State"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "token", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {"name": "parts", "type": {"type": "array", "items": "bytes"}},
    ],
}


def avro(value: object, schema: object = AVRO) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, value)
    return stream.getvalue()


def test_avro() -> None:
    text = json.dumps(AVRO)
    kind = spark_type(text)
    assert kind == StructType(
        [
            StructField("id", LongType()),
            StructField("note", StringType()),
            StructField("state", StringType()),
            StructField("before", StringType()),
            StructField("at", TimestampType()),
            StructField("token", StringType()),
            StructField("counts", MapType(StringType(), IntegerType())),
            StructField("parts", ArrayType(BinaryType())),
        ]
    )
    order = {
        "id": 5, "note": None, "state": "OPEN", "before": "PAID", "at": datetime(2026, 1, 2, tzinfo=UTC),
        "token": "x", "counts": {"a": 1}, "parts": [b"1", b"2"],
    }  # fmt: skip
    plain = json.loads(text)
    del plain["fields"][5]["type"]["logicalType"]
    good = avro(order, plain)
    decoder = AvroDecoder(text, to_arrow_type(kind, timezone="UTC"))
    decoded = decoder.decode(column(good, good[:-3], good + b"x", b"", None))
    assert decoded.values.to_pylist() == [{**order, "counts": [("a", 1)]}, None, None, None, None]
    errors = decoded.errors.to_pylist()
    assert errors[0] is None and errors[4] is None
    assert all(error.startswith("does not match the Avro schema") for error in errors[1:4])
    assert "1 trailing bytes" in errors[2]
    assert decoded.raw.to_pylist() == [None, good[:-3], good + b"x", b"", None]


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=4))
def test_avro_of_any_bytes(texts: list[bytes]) -> None:
    text = json.dumps(AVRO)
    decoder = AvroDecoder(text, to_arrow_type(spark_type(text), timezone="UTC"))
    decoded = decoder.decode(pa.array(texts, pa.binary()))
    assert len(decoded.values) == len(texts)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("{", "not an Avro schema"),
        ('{"type": "nothing"}', "not an Avro schema"),
        ('["int", "string"]', "union of 2 types"),
        (
            '{"type": "record", "name": "Tree", "fields": [{"name": "left", "type": ["null", "Tree"]}]}',
            "recursive type Tree",
        ),
    ],
)
def test_unsupported_avro_schemas(schema: str, message: str) -> None:
    with pytest.raises(BadOption, match=message):
        spark_type(schema)


def test_the_columns_of_decoded_values() -> None:
    base = {"kafka.bootstrap.servers": "a:1", "subscribe": "orders"}
    as_json = read_options({**base, "valueFormat": "json", "valueSchema": "id BIGINT, name STRING"})
    full = table_schema(as_json)
    assert full["value"].dataType.simpleString() == "struct<id:bigint,name:string>"
    assert full.names[-2:] == ["valueError", "rawValue"]
    schema = StructType([StructField("id", LongType())])
    as_json = read_options(
        {**base, "valueFormat": "json", "valueSchema": schema.json(), "includeHeaders": "false"}
    )
    full = table_schema(as_json)
    assert full["value"].dataType == schema and "headers" not in full.names
    with pytest.raises(BadOption, match="requires the option valueSchema"):
        table_schema(read_options({**base, "valueFormat": "json"}))
    with pytest.raises(BadOption, match="unknown column price"):
        RowBuilder(read_options(base), StructType([StructField("price", LongType())]))
    with pytest.raises(BadOption, match="require the column value"):
        RowBuilder(as_json, StructType([StructField("valueError", StringType())]))
    with pytest.raises(BadOption, match="JSON cannot be read as binary"):
        RowBuilder(
            read_options({**base, "valueFormat": "json", "valueSchema": "BINARY"}),
            StructType([StructField("value", BinaryType())]),
        )
