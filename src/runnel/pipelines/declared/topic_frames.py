"""The DataFrames of sources, and of their dead letters."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from runnel.pipelines.declared.declaration import Declaration, Source
from runnel.pipelines.declared.patterns import DEAD_LETTERS, read_pattern

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

_HEADERS = "array<struct<key:string,value:binary>>"
_DEAD = "runnel.dead-letter."
_REASON_CHARACTERS_MAX = 1000
"""A reason may quote the value, and the letter must not exceed the topic's maximum size."""


def read_options_of(
    source: Source, declaration: Declaration, query: str, starts: Mapping[str, Mapping[str, int]] | None
) -> dict[str, str]:
    """The options of the format runnel that read this source for one query."""
    options = {
        **declaration.connection,
        "kafka.group.id": f"{declaration.name}.{query}",
        "kafka.client.id": f"runnel-{declaration.name}",
        "failOnDataLoss": str(source.fails_on_data_loss).lower(),
        "valueFormat": source.format,
        **start_options(source, starts),
    }
    pattern = read_pattern(source, declaration)
    if pattern is not None:
        options["subscribePattern"] = pattern
    else:
        options["subscribe"] = ",".join(source.topics)
    options |= _value_options(source, declaration)
    if source.records_per_batch is not None:
        options["maxOffsetsPerTrigger"] = str(source.records_per_batch)
    return {**options, **source.options}


def start_options(source: Source, starts: Mapping[str, Mapping[str, int]] | None) -> dict[str, str]:
    """Options for the start: offsets that were looked up before, or the value in the file."""
    if starts is not None:
        return {"startingOffsets": json.dumps(starts)}
    if source.start.isdecimal():
        return {"startingTimestamp": source.start, "startingOffsetsByTimestampStrategy": "latest"}
    return {"startingOffsets": source.start}


def _value_options(source: Source, declaration: Declaration) -> dict[str, str]:
    if source.subject is not None:
        return declaration.subject_options(source.subject)
    return {} if source.schema is None else {"valueSchema": source.schema.text}


def source_columns(source: Source, declaration: Declaration) -> "StructType":
    """The columns of a source; those of a subject are looked up."""
    from pyspark.sql.types import StructField, StructType

    from runnel.pipelines.source.columns import TYPES

    topic = source.topics[0] if source.topics else "any"
    asked = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": topic, "valueFormat": source.format}
    asked |= _value_options(source, declaration)
    value = _all_columns(asked)["value"].dataType
    fields = list(value.fields) if isinstance(value, StructType) else [StructField("value", value)]
    return StructType([*fields, *(StructField(f"_{name}", TYPES[name]) for name in source.metadata)])


def _all_columns(options: Mapping[str, str]) -> "StructType":
    """All columns of the format runnel with these options."""
    from runnel.pipelines.source.columns import table_schema
    from runnel.pipelines.source.options import read_options

    return table_schema(read_options(options))


def _raw(session: "SparkSession", options: Mapping[str, str], columns: tuple[str, ...]) -> "DataFrame":
    """The stream with these columns only, so that others are not decoded."""
    from pyspark.sql.types import StructType

    chosen = StructType([field for field in _all_columns(options).fields if field.name in columns])
    return session.readStream.format("runnel").schema(chosen).options(**options).load()


def topic_frame(session: "SparkSession", source: Source, options: Mapping[str, str]) -> "DataFrame":
    """The rows of a source."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    where = ("topic", "partition", "offset") if source.on_malformed == "fail" else ()
    raw = _raw(session, options, ("value", "valueError", *where, *source.metadata))
    if "valueError" in raw.columns:
        raw = _checked(raw, source)
    if not source.keeps_tombstones:
        raw = raw.where(F.col("value").isNotNull())
    value_type = raw.schema["value"].dataType
    names = value_type.fieldNames() if isinstance(value_type, StructType) else None
    values = [F.col("value")] if names is None else [_field(name) for name in names]
    return raw.select(*values, *(F.col(name).alias(f"_{name}") for name in source.metadata))


def _field(name: str) -> "Column":
    from pyspark.sql import functions as F

    return F.col("value").getField(name).alias(name)


def _checked(raw: "DataFrame", source: Source) -> "DataFrame":
    from pyspark.sql import functions as F

    error = F.col("valueError")
    if source.on_malformed != "fail":
        if source.on_malformed == "skip":
            raw = raw.observe(malformed_name(source), F.count(error).alias("count"))
        return raw.where(error.isNull())
    sentence = F.concat(
        F.lit("malformed value in "),
        F.col("topic"),
        F.lit("-"),
        F.col("partition").cast("string"),
        F.lit(" at offset "),
        F.col("offset").cast("string"),
        F.lit(": "),
        error,
    )
    return raw.where(F.when(error.isNull(), F.lit(True)).otherwise(F.raise_error(sentence).cast("boolean")))


def malformed_name(source: Source) -> str:
    """The name of the observation that counts malformed values."""
    return f"malformed {source.name}"


def has_malformed(source: Source) -> bool:
    """Can values of this source be malformed? Any bytes are valid bytes."""
    return source.format != "bytes"


def dead_letter_frame(
    session: "SparkSession", source: Source, pipeline: str, options: Mapping[str, str]
) -> "DataFrame":
    """The malformed values of a source as records for its dead-letter topic."""
    from pyspark.sql import functions as F

    position = ("topic", "partition", "offset", "timestamp")
    columns = ("key", "value", "rawValue", "valueError", "headers", *position)
    raw = _raw(session, {**options, "includeHeaders": "true"}, columns)
    error = F.col("valueError")
    counted = raw.observe(malformed_name(source), F.count(error).alias("count"))
    fields = {
        "reason": error.substr(1, _REASON_CHARACTERS_MAX),
        "topic": F.col("topic"),
        "partition": F.col("partition").cast("string"),
        "offset": F.col("offset").cast("string"),
        "timestamp": F.unix_millis("timestamp").cast("string"),
        "pipeline": F.lit(pipeline),
    }
    added = F.array(
        *(
            F.struct(F.lit(f"{_DEAD}{name}").alias("key"), text.cast("binary").alias("value"))
            for name, text in fields.items()
        )
    )
    own = source.dead_letter_topic
    topic = F.concat("topic", F.lit(DEAD_LETTERS)) if own is None else F.lit(own)
    return counted.where(error.isNotNull()).select(
        F.col("key"),
        F.col("rawValue").alias("value"),
        F.concat(F.coalesce("headers", F.array().cast(_HEADERS)), added).alias("headers"),
        topic.alias("topic"),
    )
