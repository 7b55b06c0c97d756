"""The columns of the source: names, types, and their construction from a fetch."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace

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
SCHEMA_ID_TYPES: Mapping[str, DataType] = {"valueSchemaId": IntegerType()}
"""An additional column if values have schemas of a registry."""
SCHEMA_ID = "runnel.schema.id"
"""The property of the column `value` that has the id of the schema that its type was derived from."""


# Schema.


def table_schema(options: SourceOptions) -> StructType:
    """All columns with these options. A schema that they name in a registry is looked up."""
    options = with_schema(options)
    types = {**TYPES, "value": value_type(options)}
    if not options.include_headers:
        del types["headers"]
    if options.value_format != "bytes":
        types |= MALFORMED_TYPES
    properties = {}
    if options.values is not None and options.values.schema is not None:
        types |= SCHEMA_ID_TYPES
        properties["value"] = {SCHEMA_ID: options.values.schema.id}
    return StructType(
        [StructField(name, kind, metadata=properties.get(name)) for name, kind in types.items()]
    )


def with_schema(options: SourceOptions, columns: StructType | None = None) -> SourceOptions:
    """The options with the schema that they name in a registry: the one that the columns were derived from.

    A newer version may have been registered since then.
    """
    if options.values is None or options.values.schema is not None:
        return options
    from runnel.pipelines.registered.decoding import looked_up

    value = next((column for column in columns or () if column.name == "value"), None)
    schema_id = None if value is None else value.metadata.get(SCHEMA_ID)
    return replace(options, values=looked_up(options.values, schema_id))


def value_type(options: SourceOptions) -> DataType:
    """The type of the decoded values."""
    if options.values is not None:
        from runnel.pipelines.registered.decoding import decoded_type

        return decoded_type(options.values)
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
        or_subject = ", or schemaRegistry.url and valueSubject" if value_format == "avro" else ""
        raise BadOption(f"valueFormat={value_format} requires the option valueSchema{or_subject}")
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
    if names & {*MALFORMED_TYPES, *SCHEMA_ID_TYPES} and "value" not in names:
        raise BadOption("the columns valueError, rawValue and valueSchemaId require the column value")


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
        has_value = "value" in self._names
        self._decode = value_decoder(options, self._schema.field("value").type) if has_value else None

    def batch(self, partition: TopicPartition, spans: Spans) -> pa.RecordBatch:
        """A batch of the records of a fetch."""
        if self._decode is None:
            columns = [COLUMNS[name](partition, spans) for name in self._names]
        else:
            decoded = self._decode(COLUMNS["value"](partition, spans))
            made = {
                "value": decoded.values,
                "valueError": decoded.errors,
                "rawValue": decoded.raw,
                "valueSchemaId": decoded.schema_ids,
            }
            columns = [
                made[name] if name in made else COLUMNS[name](partition, spans) for name in self._names
            ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def value_decoder(options: SourceOptions, kind: pa.DataType) -> Callable[[pa.BinaryArray], Decoded] | None:
    """Decodes columns of values to this type; None if they stay bytes."""
    if options.values is not None:
        from runnel.pipelines.registered.decoding import RegisteredDecoder

        return RegisteredDecoder(options.values, kind).decode
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
