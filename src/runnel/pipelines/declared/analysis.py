"""A declaration as Spark understands it, checked on streams without rows: no broker is asked."""

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
from runnel.pipelines.declared.findings import Findings, Place, did_you_mean, listed
from runnel.pipelines.declared.frames import built, own_session, with_watermark
from runnel.pipelines.declared.graph import known_names, sources_of
from runnel.pipelines.declared.spark_words import place_in, said, said_of_function
from runnel.pipelines.declared.topic_frames import source_columns
from runnel.pipelines.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_OPTION = re.compile(r"^valueSchema=.*?': ", re.DOTALL)
"""How the format begins when it reports the schema, which is at the place already."""
_PHRASES = {
    "Stream-stream": "a join that keeps rows without a partner gives them out when none can come any more: "
    "that takes a watermark on both sides, and a condition as p.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR",
    "Sorting is not": "a stream is never all there, so it cannot be sorted; groups in mode complete can",
    "without streaming sources": "it reads no source, so there is nothing to stream",
    "for no streaming aggregations": "only groups, as GROUP BY makes them, can be written in mode complete",
}
_WITHOUT_WATERMARK = ("without watermark", "without a watermark")


def analyse(session: "SparkSession", declaration: Declaration, findings: Findings) -> None:
    """Add what only Spark can find: in schemas, queries, functions, and in what sinks ask of them."""
    own = own_session(session, declaration.settings)

    def failed(part: Source | Step, error: Exception) -> None:
        _report(part, error, findings)

    with _quiet_spark():
        frames = built(own, declaration, lambda source: _empty(own, source), failed)
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
    """Spark's Python side also logs every error that it raises."""
    logger = logging.getLogger("SQLQueryContextLogger")
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before


def _empty(session: "SparkSession", source: Source) -> "DataFrame":
    """A stream with the source's columns that never has a row."""
    from pyspark.sql import functions as F

    columns: StructType = source_columns(source)
    rate = session.readStream.format("rate").load()
    nothing = rate.select(*(F.lit(None).cast(field.dataType).alias(field.name) for field in columns.fields))
    return with_watermark(nothing, source)


def _report(part: Source | Step, error: Exception, findings: Findings) -> None:
    if isinstance(part, Source):
        place = part.schema.place if part.schema else part.place
        findings.error(place, f"source {part.name!r}: {_OPTION.sub('', said(error))}")
    elif part.sql is not None:
        findings.error(place_in(part.sql, error), f"step {part.name!r}: {said(error)}")
    elif isinstance(error, PipelineError):
        findings.error(part.place, f"step {part.name!r}: {error}")
    elif part.python is not None:
        findings.error(part.python.place, f"step {part.name!r}: {said_of_function(part.python, error)}")


def _check_names(step: Step, frame: "DataFrame", findings: Findings) -> None:
    """Two columns of one name, as a join makes them with SELECT *."""
    seen: set[str] = set()
    twice: list[str] = []
    for name in frame.columns:
        if name.lower() in seen and name not in twice:
            twice.append(name)
        seen.add(name.lower())
    if twice:
        findings.error(
            step.sql.place if step.sql else step.place,
            f"step {step.name!r} has two columns named {listed(map(repr, twice), 'and')}: "
            "select columns by name, with AS where two are called the same, or join with USING",
        )


def _check_sink(
    session: "SparkSession", declaration: Declaration, sink: Sink, frame: "DataFrame", findings: Findings
) -> None:
    columns = frame.schema
    for reference in sink.column_places:
        _check_column(sink, reference, columns, findings)
    if isinstance(sink.target, TopicTarget):
        _check_topic_types(sink, sink.target, columns, findings)
    if isinstance(sink.target, TableTarget):
        _check_table_types(sink, columns, findings)
    for field in columns.fields:
        if field.metadata.get("__autoGeneratedAlias") == "true":
            findings.warn(
                sink.input.place,
                f"sink {sink.name!r} writes a column called {field.name!r}: give it a name with AS",
            )
    _check_streaming(session, declaration, sink, frame, findings)


def _check_column(sink: Sink, reference: Reference, columns: "StructType", findings: Findings) -> None:
    if reference.name not in columns.names:
        close = did_you_mean(reference.name, columns.names)
        names = f"; it has {listed(columns.names, 'and')}" if columns.names else ""
        findings.error(
            reference.place, f"{sink.input.name!r} has no column {reference.name!r}{close or names}"
        )


_HEADERS = "array<struct<key:string,value:binary>>"


def _check_topic_types(sink: Sink, target: TopicTarget, columns: "StructType", findings: Findings) -> None:
    wanted: list[tuple[str | None, tuple[str, ...]]] = [
        (target.partition, ("tinyint", "smallint", "int", "bigint")),
        (target.timestamp, ("timestamp",)),
        (target.headers, (_HEADERS,)),
        (target.value if isinstance(target.value, str) else None, ("string", "binary")),
    ]
    for name, types in wanted:
        if name in columns.names:
            found = columns[name].dataType.simpleString()
            if found not in types:
                findings.error(
                    _column_place(sink, name),
                    f"column {name!r} is {found}, and should be {listed(types)} here: cast it in a step",
                )


def _column_place(sink: Sink, name: str | None) -> Place:
    return next((column.place for column in sink.column_places if column.name == name), sink.place)


def _check_table_types(sink: Sink, columns: "StructType", findings: Findings) -> None:
    from runnel.pipelines.tables.schema import arrow_schema

    try:
        arrow_schema(columns)
    except Exception as error:  # noqa: BLE001 - whatever keeps a column out of a table
        findings.error(sink.input.place, f"sink {sink.name!r} cannot be a table: {said(error)}")


def _check_streaming(
    session: "SparkSession", declaration: Declaration, sink: Sink, frame: "DataFrame", findings: Findings
) -> None:
    """Would Spark run this as a stream, with this mode?"""
    jvm: Any = session._jvm
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, sink.mode.capitalize())()
    plan: Any = frame._jdf.queryExecution().analyzed()
    try:
        checker.checkForStreaming(plan, mode)
    except Exception as error:  # noqa: BLE001 - the bridge to Java has many kinds
        findings.error(sink.place, f"sink {sink.name!r}: {_streaming_said(declaration, sink, error)}")


def _streaming_said(declaration: Declaration, sink: Sink, error: Exception) -> str:
    text = said(error)
    for sign, phrase in _PHRASES.items():
        if sign in text:
            return phrase
    if not any(sign in text for sign in _WITHOUT_WATERMARK):
        return text
    lacking = [source.name for source in sources_of(sink.input.name, declaration) if source.watermark is None]
    if not lacking and sink.mode == "append" and "aggregation" in text:
        return (
            "in mode append a group is written when it is over, and these have no end: group by "
            "window(column, …) over the column of the watermark, or say mode: update"
        )
    if lacking and "aggregation" in text:
        return (
            "in mode append a group is written when it is over, which without a watermark is never: give one "
            f"to {listed(lacking, 'and')}, and group by window(column, …) over it, or say mode: update"
        )
    return text
