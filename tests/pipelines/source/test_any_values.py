"""Any value is either decoded or malformed, independently of others."""

import json
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_type

from runnel.pipelines.errors import BadOption
from runnel.pipelines.source.avro_values import AvroDecoder, spark_type
from runnel.pipelines.source.ddl import parse_type
from runnel.pipelines.source.json_values import JsonDecoder
from runnel.pipelines.source.values import Decoded, decode_each

PLAIN = "id BIGINT, count TINYINT, name STRING, price DOUBLE, weight FLOAT, tags ARRAY<STRING>"
RICH = (
    "id BIGINT, name DATE, price DECIMAL(20, 2), weight DECIMAL(38, 38), count TIMESTAMP, "
    "tags MAP<STRING, DOUBLE>"
)
JSON_SCHEMAS = (PLAIN, RICH, "BIGINT", "DOUBLE", "STRING", "DECIMAL(10, 0)", "ARRAY<TIMESTAMP_NTZ>", "DATE")

numbers = st.from_regex(r"-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,22})?", fullmatch=True)
beyond = st.sampled_from(
    [
        *("9" * 4301, "-" + "1" * 5000, "9" * 400, "1" * 400 + ".5", "1e400", "-1e400", "1e40", "1E-400"),
        *("1e99999999999999999999", "0e99999999999999999999", "NaN", "-Infinity", "-0", "-0.0", "0.1e1"),
    ]
)
moments = st.datetimes().map(lambda moment: json.dumps(moment.isoformat())) | st.sampled_from(
    ['"0001-01-01T00:00:00+23:59"', '"9999-12-31T23:59:59-23:59"', '"2026-01-01"', '"2026-W01-1"', '"NaN"']
)
texts = st.text(alphabet=st.characters(), max_size=8).map(json.dumps)
halves = st.sampled_from(['"\\ud800"', '"a\\udfffb"', '"\ud800"', '"\\ud83d\\ude00"', '"\x00"', '"\\u0000"'])
names = st.sampled_from(["id", "count", "name", "price", "weight", "tags", "more", "\\ud800"])
single = (
    numbers | beyond | moments | texts | halves | st.sampled_from(["null", "true", "false", "", "{", "]"])
)
documents = st.recursive(
    single,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]")
        | st.lists(st.tuples(names, inner), max_size=4).map(
            lambda members: "{" + ",".join(f'"{name}":{value}' for name, value in members) + "}"
        )
    ),
    max_leaves=8,
)
deep = st.sampled_from([400, 990, 1100, 50_000]).flatmap(
    lambda depth: st.sampled_from(["[" * depth + "]" * depth, '{"id":' * depth + "1" + "}" * depth])
)
bodies = st.binary(max_size=8) | (documents | deep).map(lambda text: text.encode("utf-8", "surrogatepass"))


def shown(column: pa.Array, index: int) -> str:
    """A value as text; a timestamp that no datetime can hold is shown by Arrow itself."""
    try:
        text = repr(column[index])
    except OverflowError:
        text = column.slice(index, 1).to_string()
    return text.replace("-0.0", "0.0")


def check_each(decode, values: list[bytes]) -> None:
    """Each value is decoded or malformed, in a column as alone."""
    together: Decoded = decode(pa.array(values, pa.binary()))
    for column in (together.values, together.errors, together.raw):
        column.validate(full=True)
        assert len(column) == len(values)
    for index, value in enumerate(values):
        alone: Decoded = decode(pa.array([value], pa.binary()))
        # A whole number -0 may lose its sign on one of the ways.
        assert shown(together.values, index) == shown(alone.values, 0)
        assert (together.errors[index].as_py() is None) == (alone.errors[0].as_py() is None)
        if together.errors[index].as_py() is not None:
            assert together.errors[index].as_py() and together.values[index].as_py() is None
            assert together.raw[index].as_py() == value


@pytest.mark.parametrize("schema", JSON_SCHEMAS)
@settings(deadline=None, max_examples=60)
@given(values=st.lists(bodies, min_size=1, max_size=4))
def test_json_of_any_bytes(schema: str, values: list[bytes]) -> None:
    check_each(JsonDecoder(to_arrow_type(parse_type(schema), timezone="UTC")).decode, values)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"id": %s}' % ("9" * 5000), "value.id is 9999"),
        ('{"id": -%s}' % ("9" * 5000), "too large for 64 bits"),
        ('{"id": 1e99999999999999999999}', "value.id is "),
        ('{"id": %s' % ("9" * 5000), "not JSON"),
        ('{"tags": %s}' % ("9" * 5000), "value.tags is 9999"),
        ('{"id": ' * 5000 + "1" + "}" * 5000, "nested too deeply"),
    ],
)
@pytest.mark.parametrize("schema", [PLAIN, RICH])
def test_huge_numbers(schema: str, text: str, message: str) -> None:
    decoder = JsonDecoder(to_arrow_type(parse_type(schema), timezone="UTC"))
    unnamed = b'{"id": 1, "other": %s, "another": 1e99999999999999999999}' % (b"9" * 5000)
    decoded = decoder.decode(pa.array([b'{"id": 1}', text.encode(), unnamed], pa.binary()))
    assert message in decoded.errors[1].as_py()
    assert [value and value["id"] for value in decoded.values.to_pylist()] == [1, None, 1]
    assert decoded.errors.null_count == 2, "fields that are not in the schema may be of any size"


@pytest.mark.parametrize("number", ["9" * 400, "-" + "9" * 400, "1e400", "9" * 5000, "-1e400"])
def test_a_float_out_of_range_is_infinite_in_both_decoders(number: str) -> None:
    decoder = JsonDecoder(pa.struct([("price", pa.float64()), ("weight", pa.float32())]))
    text = f'{{"price": {number}, "weight": {number}}}'.encode()
    fast, careful = (decoder.decode(pa.array([text, *more], pa.binary())) for more in ([], [b"{"]))
    infinite = float("-inf" if number.startswith("-") else "inf")
    assert fast.values[0].as_py() == careful.values[0].as_py() == {"price": infinite, "weight": infinite}


@pytest.mark.parametrize(
    ("precision", "scale", "text", "expected"),
    [
        (20, 2, "12345678901234567.89", "12345678901234567.89"),
        (38, 2, "12345678901234567890123456789012.25", "12345678901234567890123456789012.25"),
        (38, 0, "9" * 38, "9" * 38),
        (38, 38, "-0." + "1" * 38, "-0." + "1" * 38),
        (10, 2, "0.1", "0.10"),
        (10, 2, "0.125", "0.12"),
        (10, 2, '"12345678.9"', "12345678.90"),
        (10, 2, "1.5e3", "1500.00"),
        (10, 2, "1e-99", "0.00"),
        (10, 2, "123456789.1", None),
        (38, 2, "9" * 37, None),
        (10, 2, "1e99999999999999999999", None),
        (10, 2, "NaN", None),
        (10, 2, '"NaN"', None),
        (10, 2, "true", None),
    ],
)
def test_decimals_are_exact(precision: int, scale: int, text: str, expected: str | None) -> None:
    kind = pa.struct([("sums", pa.list_(pa.decimal128(precision, scale))), ("price", pa.float64())])
    decoded = JsonDecoder(kind).decode(
        pa.array([f'{{"sums": [{text}], "price": 0.1}}'.encode()], pa.binary())
    )
    if expected is None:
        assert "value.sums[] is" in decoded.errors[0].as_py()
    else:
        assert decoded.values.to_pylist() == [{"sums": [Decimal(expected)], "price": 0.1}]


@given(st.integers(0, 38).flatmap(lambda scale: st.tuples(st.just(scale), st.integers(-(10**38), 10**38))))
def test_any_decimal_comes_back(made: tuple[int, int]) -> None:
    scale, digits = made
    number = Decimal((int(digits < 0), tuple(map(int, str(abs(digits)))), -scale))
    decoded = JsonDecoder(pa.decimal128(38, scale)).decode(pa.array([f"{number:f}".encode()], pa.binary()))
    assert decoded.values.to_pylist() == [number if abs(digits) < 10**38 else None]


AVRO_SCHEMAS = (
    '"string"',
    '"boolean"',
    '["null", "double"]',
    '{"type": "long", "logicalType": "timestamp-micros"}',
    '{"type": "long", "logicalType": "local-timestamp-millis"}',
    '{"type": "int", "logicalType": "date"}',
    '{"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 4}',
    '{"type": "fixed", "name": "Sum", "size": 5, "logicalType": "decimal", "precision": 9}',
    '{"type": "array", "items": {"type": "enum", "name": "State", "symbols": ["OPEN", "PAID"]}}',
    '{"type": "map", "values": ["null", {"type": "array", "items": "bytes"}]}',
    '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "float"}]'
    "}",
)
huge = st.sampled_from(
    [b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\xff" * 9 + b"\x01", b"\xff" * 30, b"\x01"]
)


@pytest.mark.parametrize("schema", AVRO_SCHEMAS)
@settings(deadline=None, max_examples=60)
@given(
    values=st.lists(st.lists(st.binary(max_size=12) | huge, max_size=3).map(b"".join), min_size=1, max_size=3)
)
def test_avro_of_any_bytes(schema: str, values: list[bytes]) -> None:
    check_each(AvroDecoder(schema, to_arrow_type(spark_type(schema), timezone="UTC")).decode, values)


def test_arrays_of_empty_items_are_rejected() -> None:
    """A value of ten bytes could have any number of items."""
    empty = {"type": "record", "name": "Inner", "fields": []}
    outer = {"type": "record", "name": "Outer", "fields": [{"name": "inner", "type": empty}]}
    for items in (empty, outer):
        with pytest.raises(BadOption, match="items without any bytes"):
            spark_type(json.dumps({"type": "array", "items": items}))
    with pytest.raises(BadOption, match="null"):
        spark_type('"null"')


class Unforeseen(Exception):
    pass


def test_unforeseen_errors_are_malformed_values_except_for_memory() -> None:
    def fail(text: bytes) -> object:
        raise {b"memory": MemoryError(), b"half": Unforeseen("\ud800")}[text]

    decoded = decode_each(pa.array([b"half"], pa.binary()), pa.string(), fail)
    assert decoded.errors.to_pylist() == ["cannot be decoded: Unforeseen \\ud800"]
    assert decoded.raw.to_pylist() == [b"half"]
    with pytest.raises(MemoryError):
        decode_each(pa.array([b"memory"], pa.binary()), pa.string(), fail)
