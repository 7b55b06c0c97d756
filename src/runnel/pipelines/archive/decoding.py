"""Adds the decoded value as column `decoded`, and decoding errors as `decode_error`."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType, StringType, StructField, StructType

from runnel.pipelines.archive.layout import DECODE_ERROR, DECODED
from runnel.pipelines.source.columns import value_decoder, value_type
from runnel.pipelines.source.options import SourceOptions


def with_decoded(frame: DataFrame, options: SourceOptions) -> DataFrame:
    """Add the decoded values, by the format and schema in `options`."""
    if options.value_format == "bytes":
        return frame
    kind = value_type(options)
    added = StructType([StructField(DECODED, kind), StructField(DECODE_ERROR, StringType())])
    return frame.mapInArrow(partial(_decode_batches, options, kind), StructType([*frame.schema, *added]))


def _decode_batches(options: SourceOptions, kind: DataType, batches: Iterable[Any]) -> Iterator[Any]:
    """Runs in a task."""
    decode = value_decoder(options, to_arrow_type(kind, timezone="UTC"))
    assert decode is not None, "bytes are not decoded"
    for batch in batches:
        decoded = decode(batch.column("value").cast(pa.binary()))
        names = [*batch.schema.names, DECODED, DECODE_ERROR]
        yield pa.RecordBatch.from_arrays([*batch.columns, decoded.values, decoded.errors], names=names)
