"""Spark's analysis of a pipeline, on empty streams and without a broker."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from runnel.pipelines.declared.declaration import (
    Declaration,
    Reference,
    Sink,
    Source,
    Step,
    TableTarget,
    TopicTarget,
)
from runnel.pipelines.declared.findings import Findings, Position, did_you_mean, listed
from runnel.pipelines.declared.frames import built, own_session, with_watermark
from runnel.pipelines.declared.graph import known_names, sources_of
from runnel.pipelines.declared.spark_errors import error_text, function_error_text, position_in
from runnel.pipelines.declared.topic_frames import source_columns
from runnel.pipelines.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_OPTION = re.compile(r"^valueSchema=.*?': ", re.DOTALL)
"""Prefix of the format's errors about the schema, to which the position refers already."""
_PHRASES = {
    "Stream-stream": "an outer join of streams requires a watermark on both sides and a time condition, "
    "such as p.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR",
    "Sorting is not": "streams cannot be sorted, except aggregates in mode complete",
    "without streaming sources": "it reads no source",
    "for no streaming aggregations": "mode complete requires an aggregation (GROUP BY)",
}
_WITHOUT_WATERMARK = ("without watermark", "without a watermark")


def analyse(session: "SparkSession", declaration: Declaration, findings: Findings) -> None:
    """Add the findings of Spark about schemas, queries, functions and sinks."""
    own = own_session(session, declaration.settings)

    def failed(part: Source | Step, error: Exception) -> None:
        _report(part, error, findings)

    with _quiet_spark():
        frames = built(own, declaration, lambda source: _empty(own, source, declaration), failed)
        for step in declaration.steps.values():
            if step.name in frames:
                _check_names(step, frames[step.name], findings)
        known = known_names(declaration)
        for sink in declaration.sinks.values():
            frame = frames.get(known.get(sink.input.name.lower(), ""))
            if frame is not None:
                _check_sink(own, declaration, sink, frame, findings)


@contextmanager
def _quiet_spark() -> Iterator[None]:
    """Silence the log of PySpark, which repeats every error that it raises."""
    logger = logging.getLogger("SQLQueryContextLogger")
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before


def _empty(session: "SparkSession", source: Source, declaration: Declaration) -> "DataFrame":
    """A stream with the columns of the source and without rows."""
    from pyspark.sql import functions as F

    columns: StructType = source_columns(source, declaration)
    rate = session.readStream.format("rate").load()
    nothing = rate.select(*(F.lit(None).cast(field.dataType).alias(field.name) for field in columns.fields))
    return with_watermark(nothing, source)


def _report(part: Source | Step, error: Exception, findings: Findings) -> None:
    if isinstance(part, Source):
        named = part.schema or part.subject or part
        position = named.position
        findings.error(position, f"source {part.name!r}: {_OPTION.sub('', error_text(error))}")
    elif part.sql is not None:
        findings.error(position_in(part.sql, error), f"step {part.name!r}: {error_text(error)}")
    elif isinstance(error, PipelineError):
        findings.error(part.position, f"step {part.name!r}: {error}")
    elif part.python is not None:
        findings.error(part.python.position, f"step {part.name!r}: {function_error_text(part.python, error)}")


def _check_names(step: Step, frame: "DataFrame", findings: Findings) -> None:
    """Check for duplicate column names, as in SELECT * of a join."""
    seen: set[str] = set()
    twice: list[str] = []
    for name in frame.columns:
        if name.lower() in seen and name not in twice:
            twice.append(name)
        seen.add(name.lower())
    if twice:
        findings.error(
            step.sql.position if step.sql else step.position,
            f"step {step.name!r} has duplicate columns {listed(map(repr, twice), 'and')}: "
            "select columns by name, rename them with AS, or join with USING",
        )


def _check_sink(
    session: "SparkSession", declaration: Declaration, sink: Sink, frame: "DataFrame", findings: Findings
) -> None:
    columns = frame.schema
    for reference in sink.column_references:
        _check_column(sink, reference, columns, findings)
    if isinstance(sink.target, TopicTarget):
        _check_topic_types(sink, sink.target, columns, findings)
    if isinstance(sink.target, TableTarget):
        _check_table_types(sink, columns, findings)
    for field in columns.fields:
        if field.metadata.get("__autoGeneratedAlias") == "true":
            findings.warn(
                sink.input.position,
                f"sink {sink.name!r} writes a column with the generated name {field.name!r}: name it with AS",
            )
    _check_streaming(session, declaration, sink, frame, findings)


def _check_column(sink: Sink, reference: Reference, columns: "StructType", findings: Findings) -> None:
    if reference.name not in columns.names:
        close = did_you_mean(reference.name, columns.names)
        names = f"; available: {listed(columns.names, 'and')}" if columns.names else ""
        findings.error(
            reference.position, f"{sink.input.name!r} has no column {reference.name!r}{close or names}"
        )


_HEADERS = "array<struct<key:string,value:binary>>"


def _check_topic_types(sink: Sink, target: TopicTarget, columns: "StructType", findings: Findings) -> None:
    wanted: list[tuple[str | None, tuple[str, ...]]] = [
        (target.partition, ("tinyint", "smallint", "int", "bigint")),
        (target.timestamp, ("timestamp",)),
        (target.headers, (_HEADERS,)),
    ]
    if target.subject is None and isinstance(target.value, str):
        wanted.append((target.value, ("string", "binary")))
    for name, types in wanted:
        if name in columns.names:
            found = columns[name].dataType.simpleString()
            if found not in types:
                findings.error(
                    _column_position(sink, name),
                    f"column {name!r} is {found}, expected {listed(types)}: cast it in a step",
                )


def _column_position(sink: Sink, name: str | None) -> Position:
    return next((column.position for column in sink.column_references if column.name == name), sink.position)


def _check_table_types(sink: Sink, columns: "StructType", findings: Findings) -> None:
    from runnel.pipelines.tables.schema import arrow_schema

    try:
        arrow_schema(columns)
    except Exception as error:  # noqa: BLE001 - any reason why a column is not supported
        findings.error(sink.input.position, f"sink {sink.name!r} cannot be a table: {error_text(error)}")


def _check_streaming(
    session: "SparkSession", declaration: Declaration, sink: Sink, frame: "DataFrame", findings: Findings
) -> None:
    """Check that Spark supports the query as a stream in this mode."""
    jvm: Any = session._jvm
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, sink.mode.capitalize())()
    plan: Any = frame._jdf.queryExecution().analyzed()
    try:
        checker.checkForStreaming(plan, mode)
    except Exception as error:  # noqa: BLE001 - the bridge to Java has many kinds
        findings.error(sink.position, f"sink {sink.name!r}: {_streaming_text(declaration, sink, error)}")


def _streaming_text(declaration: Declaration, sink: Sink, error: Exception) -> str:
    text = error_text(error)
    for sign, phrase in _PHRASES.items():
        if sign in text:
            return phrase
    if not any(sign in text for sign in _WITHOUT_WATERMARK):
        return text
    lacking = [source.name for source in sources_of(sink.input.name, declaration) if source.watermark is None]
    if not lacking and sink.mode == "append" and "aggregation" in text:
        return (
            "mode append writes a group once the watermark has passed it: group by "
            "window(column, …) of the watermark's column, or use mode: update"
        )
    if lacking and "aggregation" in text:
        return (
            "mode append writes a group once the watermark has passed it: add a watermark to "
            f"{listed(lacking, 'and')} and group by window(column, …) of its column, or use mode: update"
        )
    return text
