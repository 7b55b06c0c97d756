"""Running a declared pipeline: one streaming query per sink, and one for the malformed values of a source."""

import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from runnel.pipelines.broker import BrokerView
from runnel.pipelines.checkpoint import locked_checkpoint
from runnel.pipelines.declared.beginning import TRIES, await_end, begun, lost_patience
from runnel.pipelines.declared.counting import Counting, Outcome
from runnel.pipelines.declared.declaration import (
    ConsoleTarget,
    Declaration,
    ParquetTarget,
    Sink,
    Source,
    Step,
    TableTarget,
    TopicTarget,
    Trigger,
)
from runnel.pipelines.declared.frames import Frames, built, own_session, with_watermark
from runnel.pipelines.declared.graph import dead_letter_query, known_names, needed_for, sources_of
from runnel.pipelines.declared.made_topics import dead_letter_sources, make_topics
from runnel.pipelines.declared.patterns import DEAD_LETTERS
from runnel.pipelines.declared.reading import TRIGGER_MS
from runnel.pipelines.declared.sink_queries import check_timeouts, start_query, started, topic_writer
from runnel.pipelines.declared.spark_words import said
from runnel.pipelines.declared.starts import Starts, pinned_starts
from runnel.pipelines.declared.topic_frames import dead_letter_frame, read_options_of, topic_frame
from runnel.pipelines.errors import PipelineError
from runnel.pipelines.locations import check_location
from runnel.pipelines.progress import Progress
from runnel.pipelines.queries import run_queries

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_IN_DOUBT = re.compile(r"(?:the option )?inDoubt=(\w+)")


@dataclass(frozen=True, slots=True)
class DeclaredOptions:
    """A pipeline to run; what is None is as its file says."""

    declaration: Declaration
    once: bool | None = None
    checkpoint: str | None = None
    broker: str | None = None
    in_doubt: str = "fail"
    """What to do with a batch whose outcome is unknown: `fail`, `write` or `skip`."""


def run(session: "SparkSession", options: DeclaredOptions, progress: Progress) -> Outcome:
    """Run a pipeline until it has read all there is, or is stopped."""
    declaration = options.declaration
    if options.broker is not None:
        declaration = replace(declaration, broker=options.broker)
    checkpoint = options.checkpoint or declaration.checkpoint
    own = own_session(session, declaration.settings)
    counting = Counting(progress, declaration)
    for location in _locations(declaration):
        check_location(session, location)
    with ExitStack() as held:
        with BrokerView(declaration.broker, client_id=f"runnel-{declaration.name}") as broker:
            # Before anything is made or noted: what belongs to others, or to another cluster, stays as it is.
            folders = _held_folders(declaration, checkpoint, broker.cluster_id(), held)
            check_timeouts(declaration, broker)
            make_topics(declaration, broker)
            starts = pinned_starts(declaration, broker, checkpoint)
        trigger = _trigger(declaration, options.once)
        starting = _Starting(own, declaration, trigger, folders, starts, options.in_doubt)
        try:
            counting.outcome.was_stopped = _run_to_the_end(starting, counting)
        except PipelineError as error:
            # The sink names its options; users of a file have those of the command.
            text = _IN_DOUBT.sub(r"--in-doubt \1", str(error))
            if text == str(error):
                raise
            raise PipelineError(text) from error
    return counting.outcome


def _locations(declaration: Declaration) -> list[str]:
    """Where sinks put files."""
    targets = [sink.target for sink in declaration.sinks.values()]
    tables = [target.warehouse for target in targets if isinstance(target, TableTarget)]
    return tables + [target.path for target in targets if isinstance(target, ParquetTarget)]


def _run_to_the_end(starting: "_Starting", progress: Progress) -> bool:
    """Run all queries, and again from their checkpoints where Spark lost patience; was it stopped?"""
    for left in reversed(range(TRIES)):
        queries = starting.all()
        try:
            return run_queries(queries, progress).was_stopped
        except PipelineError as error:
            if not left or not lost_patience(error.__cause__ or error):
                raise
            for query in queries:
                await_end(query)
            progress.message(
                "a process was too slow for Spark, on a machine this busy: going on from the checkpoint"
            )
    raise AssertionError("the last try returns or raises")


def _trigger(declaration: Declaration, once: bool | None) -> Trigger:
    if once is None:
        return declaration.trigger
    interval_ms = TRIGGER_MS if declaration.trigger.is_once else declaration.trigger.interval_ms
    return Trigger(is_once=once, interval_ms=interval_ms)


def _held_folders(
    declaration: Declaration, checkpoint: str, cluster: str | None, held: ExitStack
) -> dict[str, str]:
    """The folder of each query's checkpoint, all held until the pipeline ends."""
    folders: dict[str, str] = {}

    def hold(name: str, sources: list[Source], target: str) -> None:
        topics = [topic for source in sources for topic in (source.topics or (f"/{source.pattern}/",))]
        folders[name] = held.enter_context(
            locked_checkpoint(
                f"{checkpoint}/{name}",
                pipeline=f"{declaration.name}.{name}",
                sources=topics,
                sink=target,
                cluster=cluster,
            )
        )

    for sink in declaration.sinks.values():
        hold(sink.name, sources_of(sink.input.name, declaration), target_text(sink))
    for source in dead_letter_sources(declaration):
        hold(_own_name(source), [source], f"topic {source.dead_letter_topic or f'…{DEAD_LETTERS}'}")
    return folders


def _own_name(source: Source) -> str:
    """What the query of a source's dead letters has of its own is called like this; no sink's name is."""
    return f"_{dead_letter_query(source)}"


class _Starting:
    """Builds and starts the queries of a pipeline."""

    def __init__(
        self,
        session: "SparkSession",
        declaration: Declaration,
        trigger: Trigger,
        folders: Mapping[str, str],
        starts: Mapping[str, Starts],
        in_doubt: str,
    ) -> None:
        self._session = session
        self._declaration = declaration
        self._trigger = trigger
        self._folders = folders
        self._starts = starts
        self._in_doubt = in_doubt

    def all(self) -> "list[StreamingQuery]":
        """Start every query of the pipeline."""
        queries: list[StreamingQuery] = []
        try:
            for sink in self._declaration.sinks.values():
                queries.append(self.sink(sink))
            for source in dead_letter_sources(self._declaration):
                queries.append(self.dead_letters(source))
        except BaseException:
            for query in queries:
                query.stop()
            raise
        return queries

    def sink(self, sink: Sink) -> "StreamingQuery":
        """The query of a sink; it reads its sources for itself, as a consumer group of its own."""
        declaration, folder = self._declaration, self._folders[sink.name]
        frame = self._frames(sink)[known_names(declaration)[sink.input.name.lower()]]
        return begun(lambda: start_query(declaration, sink, frame, self._trigger, folder, self._in_doubt))

    def dead_letters(self, source: Source) -> "StreamingQuery":
        """The query that carries the malformed values of a source away."""
        folder = self._folders[_own_name(source)]
        options = self._options(source, _own_name(source))
        rows = dead_letter_frame(self._session, source, self._declaration.name, options)
        # What came compressed must fit again.
        more = {"inDoubt": self._in_doubt, "kafka.compression.type": "zstd"}
        writer = topic_writer(rows, self._declaration.broker, "exactly-once", "append", None, more)
        return begun(lambda: started(writer, dead_letter_query(source), self._trigger, folder))

    def _frames(self, sink: Sink) -> Frames:
        def source_frame(source: Source) -> "DataFrame":
            return with_watermark(
                topic_frame(self._session, source, self._options(source, sink.name)), source
            )

        def failed(part: Source | Step, error: Exception) -> None:
            raise PipelineError(f"{part.name}: {said(error)}") from error

        needed = needed_for(sink.input.name, self._declaration)
        return built(self._session, needed, source_frame, failed)

    def _options(self, source: Source, query: str) -> dict[str, str]:
        return read_options_of(source, self._declaration, query, self._starts.get(source.name))


def target_text(sink: Sink) -> str:
    """Where a sink writes to, in two words."""
    match sink.target:
        case TopicTarget(topic=topic):
            return f"topic {topic}"
        case TableTarget(table=table):
            return f"table {table}"
        case ParquetTarget(path=path):
            return f"files in {path}"
        case ConsoleTarget():
            return "the terminal"
