"""The columns that a topic has as a table."""

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
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
from runnel.pipelines.source.decode import MICROSECONDS_MAX, Spans, binary_column
from runnel.pipelines.source.headers import header_column

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
"""Names and types as Spark's Kafka connector has them, in its order."""

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
