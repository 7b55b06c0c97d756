"""Builds the DataFrames of steps, from sources or from empty streams."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from runnel.pipelines.declared.declaration import Declaration, Source, Step
from runnel.pipelines.declared.graph import in_order, known_names
from runnel.pipelines.declared.python_file import load_function
from runnel.pipelines.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Frames = dict[str, "DataFrame"]


def own_session(session: "SparkSession", settings: Mapping[str, str]) -> "SparkSession":
    """A session with separate settings and views, in the same Spark context."""
    own = session.newSession()
    # Variables were substituted when the file was parsed.
    for name, value in {"spark.sql.variable.substitute": "false", **settings}.items():
        own.conf.set(name, value)
    return own


def with_watermark(frame: "DataFrame", source: Source) -> "DataFrame":
    """The frame with the watermark of its source."""
    if source.watermark is None:
        return frame
    return frame.withWatermark(source.watermark.column, f"{source.watermark.delay_ms} milliseconds")


def step_frame(session: "SparkSession", step: Step, frames: Mapping[str, "DataFrame"]) -> "DataFrame":
    """The frame of a step, whose inputs exist already."""
    if step.sql is not None:
        _check_is_query(session, step.sql.text)
        return session.sql(step.sql.text)
    assert step.python is not None
    by_lower = {name.lower(): frame for name, frame in frames.items()}
    made: Any = load_function(step.python)(*(by_lower[reference.name.lower()] for reference in step.inputs))
    if not hasattr(made, "createOrReplaceTempView"):
        raise PipelineError(
            f"{step.python.function} in {step.python.file.name} returns {type(made).__name__}, "
            "not a DataFrame"
        )
    frame: DataFrame = made
    return frame


def _check_is_query(session: "SparkSession", sql: str) -> None:
    """ParseException unless it is a query: statements such as DROP TABLE are rejected."""
    parser: Any = session._jsparkSession.sessionState().sqlParser()
    parser.parseQuery(sql)


def built(
    session: "SparkSession",
    declaration: Declaration,
    source_frame: Callable[[Source], "DataFrame"],
    failed: Callable[[Source | Step, Exception], None],
) -> Frames:
    """The frames of all sources and steps, each registered as a view for later steps.

    Errors are passed to `failed`; steps that depend on a failed one are omitted.
    """
    frames: Frames = {}
    known = known_names(declaration)
    for part in _parts(declaration):
        inputs = () if isinstance(part, Source) else part.inputs
        if any(known.get(reference.name.lower(), "") not in frames for reference in inputs):
            continue
        try:
            frame = source_frame(part) if isinstance(part, Source) else step_frame(session, part, frames)
            frame.createOrReplaceTempView(part.name)
            frames[part.name] = frame
        except Exception as error:  # noqa: BLE001 - a function of a step may raise anything
            failed(part, error)
    return frames


def _parts(declaration: Declaration) -> Iterator[Source | Step]:
    yield from declaration.sources.values()
    yield from in_order(declaration.steps)
