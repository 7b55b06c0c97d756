"""The columns of the source: names, types, and their construction from a fetch."""

import json
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from runnel.model.ids import TopicPartition
from runnel.pipelines.errors import BadOption
from runnel.pipelines.source.avro_values import AvroDecoder, spark_type
from runnel.pipelines.source.ddl import BadType, parse_type
from runnel.pipelines.source.decode import MICROSECONDS_MAX, Spans, binary_column
from runnel.pipelines.source.headers import header_column
from runnel.pipelines.source.json_values import JsonDecoder
from runnel.pipelines.source.options import SourceOptions
from runnel.pipelines.source.values import Decoded, decode_strings

HEADERS_TYPE = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

TYPES: Mapping[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS_TYPE,
}
"""Names, types and order of Spark's Kafka connector."""
MALFORMED_TYPES: Mapping[str, DataType] = {"valueError": StringType(), "rawValue": BinaryType()}
"""Additional columns if values are decoded."""


# Schema.


def table_schema(options: SourceOptions) -> StructType:
    """All columns with these options."""
    types = {**TYPES, "value": value_type(options)}
    if not options.include_headers:
        del types["headers"]
    if options.value_format != "bytes":
        types |= MALFORMED_TYPES
    return StructType([StructField(name, kind) for name, kind in types.items()])


def value_type(options: SourceOptions) -> DataType:
    """The type of the decoded values."""
    text = options.value_schema
    match options.value_format:
        case "bytes":
            return BinaryType()
        case "string":
            return StringType()
        case "avro":
            return spark_type(_needed(text, "avro"))
        case _:
            return _json_type(_needed(text, "json").strip())


def _needed(text: str | None, value_format: str) -> str:
    if not text:
        raise BadOption(f"valueFormat={value_format} requires the option valueSchema")
    return text


def _json_type(text: str) -> DataType:
    if not text.startswith("{"):
        try:
            return parse_type(text)
        except BadType as error:
            raise BadOption(f"valueSchema={text!r}: {error}") from None
    try:
        return StructType.fromJson(json.loads(text))
    except (ValueError, KeyError, TypeError) as error:
        raise BadOption(f"valueSchema is not the JSON form of a Spark schema: {error!r}") from None


def check_schema(chosen: StructType, options: SourceOptions) -> None:
    """BadOption unless the columns are a subset of those available."""
    full = table_schema(options)
    types = {column.name: column.dataType for column in full}
    for column in chosen:
        if types.get(column.name) != column.dataType:
            raise BadOption(
                f"unknown column {column.name} {column.dataType.simpleString()}; "
                f"available: {full.simpleString()}"
            )
    names = set(chosen.fieldNames())
    if names & MALFORMED_TYPES.keys() and "value" not in names:
        raise BadOption("the columns valueError and rawValue require the column value")


# Construction.


Column = Callable[[TopicPartition, Spans], pa.Array]


def _timestamps(partition: TopicPartition, spans: Spans) -> pa.Array:
    limited = np.clip(spans.timestamps_ms, -MICROSECONDS_MAX, MICROSECONDS_MAX)
    return pa.array(limited * 1000).view(pa.timestamp("us", tz="UTC"))


COLUMNS: Mapping[str, Column] = {
    "key": lambda partition, spans: binary_column(spans.data, spans.key_starts, spans.key_lengths),
    "value": lambda partition, spans: binary_column(spans.data, spans.value_starts, spans.value_lengths),
    "topic": lambda partition, spans: pa.repeat(pa.scalar(partition.topic, pa.string()), len(spans)),
    "partition": lambda partition, spans: pa.array(np.full(len(spans), partition.partition, np.int32)),
    "offset": lambda partition, spans: pa.array(spans.offsets),
    "timestamp": _timestamps,
    "timestampType": lambda partition, spans: pa.array(spans.timestamp_types),
    "headers": lambda partition, spans: header_column(spans),
}


class RowBuilder:
    """Builds Arrow batches with the columns of a schema."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        check_schema(schema, options)
        self._names = schema.fieldNames()
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._decode = self._decoder(options) if "value" in self._names else None

    def batch(self, partition: TopicPartition, spans: Spans) -> pa.RecordBatch:
        """A batch of the records of a fetch."""
        if self._decode is None:
            columns = [COLUMNS[name](partition, spans) for name in self._names]
        else:
            decoded = self._decode(COLUMNS["value"](partition, spans))
            made = {"value": decoded.values, "valueError": decoded.errors, "rawValue": decoded.raw}
            columns = [
                made[name] if name in made else COLUMNS[name](partition, spans) for name in self._names
            ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _decoder(self, options: SourceOptions) -> Callable[[pa.BinaryArray], Decoded] | None:
        kind = self._schema.field("value").type
        match options.value_format:
            case "string":
                return decode_strings
            case "json":
                try:
                    return JsonDecoder(kind).decode
                except ValueError as error:
                    raise BadOption(f"valueSchema: {error}") from None
            case "avro":
                return AvroDecoder(_needed(options.value_schema, "avro"), kind).decode
            case _:
                return None
