"""Adds the decoded value as column `decoded`, and decoding errors as `decode_error`."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType, StringType, StructField, StructType

from runnel.pipelines.archive.layout import DECODE_ERROR, DECODED
from runnel.pipelines.source.avro_values import AvroDecoder
from runnel.pipelines.source.columns import value_type
from runnel.pipelines.source.json_values import JsonDecoder
from runnel.pipelines.source.options import SourceOptions
from runnel.pipelines.source.values import Decoded, decode_strings


def with_decoded(frame: DataFrame, options: SourceOptions) -> DataFrame:
    """Add the decoded values, by the format and schema in `options`."""
    if options.value_format == "bytes":
        return frame
    kind = value_type(options)
    added = StructType([StructField(DECODED, kind), StructField(DECODE_ERROR, StringType())])
    return frame.mapInArrow(partial(_decode_batches, options, kind), StructType([*frame.schema, *added]))


def _decode_batches(options: SourceOptions, kind: DataType, batches: Iterable[Any]) -> Iterator[Any]:
    """Runs in a task."""
    decode = _decoder(options, to_arrow_type(kind, timezone="UTC"))
    for batch in batches:
        decoded = decode(batch.column("value").cast(pa.binary()))
        names = [*batch.schema.names, DECODED, DECODE_ERROR]
        yield pa.RecordBatch.from_arrays([*batch.columns, decoded.values, decoded.errors], names=names)


def _decoder(options: SourceOptions, kind: pa.DataType) -> Callable[[pa.BinaryArray], Decoded]:
    match options.value_format:
        case "json":
            return JsonDecoder(kind).decode
        case "avro":
            return AvroDecoder(options.value_schema or "", kind).decode
        case _:
            return decode_strings
