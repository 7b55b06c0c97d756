"""Types in SQL syntax."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from runnel.pipelines.source.ddl import BadType, parse_type

leaves = st.sampled_from(
    [
        BooleanType(),
        DecimalType(12, 3),
        DoubleType(),
        LongType(),
        StringType(),
        TimestampType(),
        TimestampNTZType(),
    ]
)
names = st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True)
types = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(ArrayType, inner),
        st.builds(MapType, inner, inner),
        st.dictionaries(names, inner, min_size=1, max_size=3).map(
            lambda fields: StructType([StructField(name, kind) for name, kind in fields.items()])
        ),
    ),
)


@given(types)
def test_spark_ddl_is_parsed(kind: DataType) -> None:
    assert parse_type(kind.simpleString()) == kind
    assert parse_type(f"a {kind.simpleString()}, b INT")["a"].dataType == kind  # type: ignore[index]


def test_variants_of_syntax() -> None:
    assert parse_type(
        "id bigint NOT NULL COMMENT 'its, number', `a b`: DECIMAL, array array<string>"
    ) == StructType(
        [
            StructField("id", LongType()),
            StructField("a b", DecimalType(10, 0)),
            StructField("array", ArrayType(StringType())),
        ]
    )
    assert parse_type("STRUCT<>") == StructType([])
    assert parse_type("ARRAY<STRUCT<a STRING>>").simpleString() == "array<struct<a:string>>"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id NONSENSE", "'NONSENSE' at character 4, where a type, such as BIGINT or STRING, is expected"),
        ("id", "'id' at character 1, where a type"),
        ("id INT name STRING", "'name' at character 8, where ',' is expected"),
        ("id INT,", "the text ends where the name of a field is expected"),
        ("ARRAY<INT", "the text ends where '>' is expected"),
        ("MAP<STRING>", "'>' at character 11, where ',' is expected"),
        ("STRUCT<a INT> b", "'b' at character 15, where the end is expected"),
        ("a DECIMAL(50, 2)", "at most 38 digits"),
        ("a DECIMAL(x)", "where a number is expected"),
        ("a INT COMMENT b", "a comment in quotes"),
        ("", "the text ends"),
    ],
)
def test_errors_are_reported_with_their_position(text: str, message: str) -> None:
    with pytest.raises(BadType) as reported:
        parse_type(text)
    assert message in str(reported.value)
