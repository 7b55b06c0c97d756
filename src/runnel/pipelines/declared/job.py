"""Runs a declared pipeline: a streaming query per sink, and one per source with dead letters."""

import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from runnel.client.properties import ClientProperties
from runnel.pipelines.broker import BrokerView
from runnel.pipelines.checkpoint import locked_checkpoint
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
from runnel.pipelines.declared.patterns import DEAD_LETTERS
from runnel.pipelines.declared.query_start import (
    ATTEMPTS_MAX,
    await_termination,
    is_connect_timeout,
    start_with_retries,
)
from runnel.pipelines.declared.reading import TRIGGER_MS
from runnel.pipelines.declared.sink_queries import (
    check_subjects,
    check_timeouts,
    start_query,
    started,
    topic_writer,
)
from runnel.pipelines.declared.spark_errors import error_text
from runnel.pipelines.declared.starts import Starts, pinned_starts
from runnel.pipelines.declared.topic_creation import create_topics, dead_letter_sources
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
    """A pipeline to run; None takes the value from the file."""

    declaration: Declaration
    once: bool | None = None
    checkpoint: str | None = None
    broker: str | None = None
    properties: ClientProperties | None = None
    in_doubt: str = "fail"
    """How to handle a batch whose outcome is unknown: `fail`, `write` or `skip`."""


def run(session: "SparkSession", options: DeclaredOptions, progress: Progress) -> Outcome:
    """Run a pipeline until it is stopped, or with `once` until it has read all records."""
    declaration = options.declaration
    if options.broker is not None:
        declaration = replace(declaration, broker=options.broker)
    if options.properties is not None:
        declaration = replace(declaration, properties=options.properties)
    checkpoint = options.checkpoint or declaration.checkpoint
    own = own_session(session, declaration.settings)
    counting = Counting(progress, declaration)
    for location in _locations(declaration):
        check_location(session, location)
    with ExitStack() as held:
        with BrokerView(
            declaration.broker, client_id=f"runnel-{declaration.name}", properties=declaration.properties
        ) as broker:
            # First, so that nothing is changed for another pipeline or another cluster.
            folders = _held_folders(declaration, checkpoint, broker.cluster_id(), held)
            check_timeouts(declaration, broker)
            check_subjects(declaration)
            create_topics(declaration, broker)
            starts = pinned_starts(declaration, broker, checkpoint)
        trigger = _trigger(declaration, options.once)
        starter = _QueryStarter(own, declaration, trigger, folders, starts, options.in_doubt)
        try:
            counting.outcome.was_stopped = _run_with_retries(starter, counting)
        except PipelineError as error:
            # The sink refers to its option; users of a file have the option of the command.
            text = _IN_DOUBT.sub(r"--in-doubt \1", str(error))
            if text == str(error):
                raise
            raise PipelineError(text) from error
    return counting.outcome


def _locations(declaration: Declaration) -> list[str]:
    """The directories that sinks write to."""
    targets = [sink.target for sink in declaration.sinks.values()]
    tables = [target.warehouse for target in targets if isinstance(target, TableTarget)]
    return tables + [target.path for target in targets if isinstance(target, ParquetTarget)]


def _run_with_retries(starter: "_QueryStarter", progress: Progress) -> bool:
    """Run all queries, resumed from their checkpoints if a worker was slow to start; was it stopped?"""
    for retries_left in reversed(range(ATTEMPTS_MAX)):
        queries = starter.all()
        try:
            return run_queries(queries, progress).was_stopped
        except PipelineError as error:
            if not retries_left or not is_connect_timeout(error.__cause__ or error):
                raise
            for query in queries:
                await_termination(query)
            progress.message("a Python worker did not start in time: resuming from the checkpoint")
    raise AssertionError("the last attempt returns or raises")


def _trigger(declaration: Declaration, once: bool | None) -> Trigger:
    if once is None:
        return declaration.trigger
    interval_ms = TRIGGER_MS if declaration.trigger.is_once else declaration.trigger.interval_ms
    return Trigger(is_once=once, interval_ms=interval_ms)


def _held_folders(
    declaration: Declaration, checkpoint: str, cluster: str | None, held: ExitStack
) -> dict[str, str]:
    """The checkpoint directory of each query, locked until the pipeline ends."""
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
    """The name of the checkpoint and group of a dead-letter query; no sink has such a name."""
    return f"_{dead_letter_query(source)}"


class _QueryStarter:
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
        """Start the query of a sink; it reads its sources in its own consumer group."""
        declaration, folder = self._declaration, self._folders[sink.name]
        frame = self._frames(sink)[known_names(declaration)[sink.input.name.lower()]]
        return start_with_retries(
            lambda: start_query(declaration, sink, frame, self._trigger, folder, self._in_doubt)
        )

    def dead_letters(self, source: Source) -> "StreamingQuery":
        """Start the query that writes the dead letters of a source."""
        folder = self._folders[_own_name(source)]
        options = self._options(source, _own_name(source))
        rows = dead_letter_frame(self._session, source, self._declaration.name, options)
        # A record that was compressed must fit again.
        more = {"inDoubt": self._in_doubt, "kafka.compression.type": "zstd"}
        writer = topic_writer(rows, self._declaration.connection, "exactly-once", "append", None, more)
        return start_with_retries(lambda: started(writer, dead_letter_query(source), self._trigger, folder))

    def _frames(self, sink: Sink) -> Frames:
        def source_frame(source: Source) -> "DataFrame":
            return with_watermark(
                topic_frame(self._session, source, self._options(source, sink.name)), source
            )

        def failed(part: Source | Step, error: Exception) -> None:
            raise PipelineError(f"{part.name}: {error_text(error)}") from error

        needed = needed_for(sink.input.name, self._declaration)
        return built(self._session, needed, source_frame, failed)

    def _options(self, source: Source, query: str) -> dict[str, str]:
        return read_options_of(source, self._declaration, query, self._starts.get(source.name))


def target_text(sink: Sink) -> str:
    """The target of a sink, for messages."""
    match sink.target:
        case TopicTarget(topic=topic):
            return f"topic {topic}"
        case TableTarget(table=table):
            return f"table {table}"
        case ParquetTarget(path=path):
            return f"files in {path}"
        case ConsoleTarget():
            return "the terminal"
