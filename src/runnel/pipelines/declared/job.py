"""Running a declared pipeline: one streaming query per sink, and one for the malformed values of a source."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from runnel.client.admin import BROKER_DEFAULT
from runnel.pipelines.broker import BrokerView
from runnel.pipelines.checkpoint import held_checkpoint
from runnel.pipelines.declared.beginning import TRIES, await_end, begun, lost_patience
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
from runnel.pipelines.declared.graph import known_names, needed_for, sources_of
from runnel.pipelines.declared.reading import TRIGGER_MS
from runnel.pipelines.declared.sink_queries import start_query, started, topic_writer
from runnel.pipelines.declared.spark_words import said
from runnel.pipelines.declared.starts import Starts, pinned_starts
from runnel.pipelines.declared.topic_frames import (
    DEAD_LETTERS,
    dead_letter_frame,
    has_malformed,
    malformed_name,
    read_options_of,
    topic_frame,
)
from runnel.pipelines.errors import PipelineError
from runnel.pipelines.progress import Progress, StreamBatch
from runnel.pipelines.queries import run_queries

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True, slots=True)
class DeclaredOptions:
    """A pipeline to run; what is None is as its file says."""

    declaration: Declaration
    once: bool | None = None
    checkpoint: str | None = None
    broker: str | None = None


@dataclass(slots=True)
class QueryOutcome:
    """What one query did."""

    name: str
    batches: int = 0
    records: int = 0
    late: int = 0
    """Rows that came after the watermark had passed them, and were left out."""


@dataclass(slots=True)
class Outcome:
    """What a pipeline did while it ran."""

    pipeline: str
    queries: list[QueryOutcome] = field(default_factory=list)
    malformed: dict[str, int] = field(default_factory=dict)
    """Values that could not be decoded, by source."""
    was_stopped: bool = False


def run(session: "SparkSession", options: DeclaredOptions, progress: Progress) -> Outcome:
    """Run a pipeline until it has read all there is, or is stopped."""
    declaration = options.declaration
    if options.broker is not None:
        declaration = replace(declaration, broker=options.broker)
    checkpoint = options.checkpoint or declaration.checkpoint
    own = own_session(session, declaration.settings)
    counting = _Counting(progress, declaration)
    with ExitStack() as held:
        with BrokerView(declaration.broker, client_id=f"runnel-{declaration.name}") as broker:
            _make_topics(declaration, broker)
            starts = pinned_starts(declaration, broker, checkpoint)
        starting = _Starting(own, declaration, _trigger(declaration, options.once), checkpoint, starts, held)
        counting.outcome.was_stopped = _run_to_the_end(starting, counting)
    return counting.outcome


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
            progress.say(
                "a process was too slow for Spark, on a machine this busy: going on from the checkpoint"
            )
    raise AssertionError("the last try returns or raises")


def _trigger(declaration: Declaration, once: bool | None) -> Trigger:
    if once is None:
        return declaration.trigger
    interval_ms = TRIGGER_MS if declaration.trigger.is_once else declaration.trigger.interval_ms
    return Trigger(is_once=once, interval_ms=interval_ms)


def read_sources(declaration: Declaration) -> list[Source]:
    """The sources that any sink needs."""
    found = {
        source.name: source
        for sink in declaration.sinks.values()
        for source in sources_of(sink.input.name, declaration)
    }
    return list(found.values())


def _make_topics(declaration: Declaration, broker: BrokerView) -> None:
    """Make the topics that are written to, those that are not there yet."""
    for sink in declaration.sinks.values():
        if isinstance(sink.target, TopicTarget):
            broker.ensure_topic(sink.target.topic, partitions=sink.target.partitions or BROKER_DEFAULT)
    for source in read_sources(declaration):
        if source.on_malformed == "dead-letter" and has_malformed(source):
            for topic in dead_letter_topics(source, broker):
                broker.ensure_topic(topic)


def dead_letter_topics(source: Source, broker: BrokerView) -> list[str]:
    """Where malformed values of a source go."""
    from runnel.pipelines.source.options import Subscription
    from runnel.pipelines.source.resolving import subscribed

    if source.dead_letter_topic is not None:
        return [source.dead_letter_topic]
    if source.pattern is None:
        return [f"{topic}{DEAD_LETTERS}" for topic in source.topics]
    topics = {partition.topic for partition in subscribed(broker, Subscription(pattern=source.pattern))}
    return sorted(f"{topic}{DEAD_LETTERS}" for topic in topics)


class _Starting:
    """Builds and starts the queries of a pipeline."""

    def __init__(
        self,
        session: "SparkSession",
        declaration: Declaration,
        trigger: Trigger,
        checkpoint: str,
        starts: Mapping[str, Starts],
        held: ExitStack,
    ) -> None:
        self._session = session
        self._declaration = declaration
        self._trigger = trigger
        self._checkpoint = checkpoint
        self._starts = starts
        self._held = held
        self._folders: dict[str, str] = {}

    def all(self) -> "list[StreamingQuery]":
        """Start every query of the pipeline."""
        queries: list[StreamingQuery] = []
        try:
            for sink in self._declaration.sinks.values():
                queries.append(self.sink(sink))
            for source in read_sources(self._declaration):
                if source.on_malformed == "dead-letter" and has_malformed(source):
                    queries.append(self.dead_letters(source))
        except BaseException:
            for query in queries:
                query.stop()
            raise
        return queries

    def sink(self, sink: Sink) -> "StreamingQuery":
        """The query of a sink; it reads its sources for itself, as a consumer group of its own."""
        declaration = self._declaration
        folder = self._folder(sink.name, sources_of(sink.input.name, declaration), target_text(sink))
        frame = self._frames(sink)[known_names(declaration)[sink.input.name.lower()]]
        return begun(lambda: start_query(declaration, sink, frame, self._trigger, folder))

    def dead_letters(self, source: Source) -> "StreamingQuery":
        """The query that carries the malformed values of a source away."""
        name = f"dead-letters-{source.name}"
        topic = source.dead_letter_topic or f"…{DEAD_LETTERS}"
        # No sink's name begins like this.
        folder = self._folder(f"_{name}", [source], f"topic {topic}")
        options = self._options(source, f"_{name}")
        rows = dead_letter_frame(self._session, source, self._declaration.name, options)
        writer = topic_writer(rows, self._declaration.broker, "exactly-once", "append", None)
        return begun(lambda: started(writer, name, self._trigger, folder))

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

    def _folder(self, name: str, sources: list[Source], target: str) -> str:
        """The folder of a query's checkpoint, which is held until the pipeline ends."""
        if name in self._folders:
            return self._folders[name]
        topics = [topic for source in sources for topic in (source.topics or (f"/{source.pattern}/",))]
        self._folders[name] = self._held.enter_context(
            held_checkpoint(
                f"{self._checkpoint}/{name}",
                pipeline=f"{self._declaration.name}.{name}",
                sources=topics,
                sink=target,
            )
        )
        return self._folders[name]


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


class _Counting(Progress):
    """Passes progress on, and keeps count of what the outcome tells."""

    def __init__(self, progress: Progress, declaration: Declaration) -> None:
        super().__init__()
        self._progress = progress
        self._by_name: dict[str, QueryOutcome] = {}
        self._said: dict[str, int] = {}
        self._sources = {malformed_name(source): source for source in declaration.sources.values()}
        self.outcome = Outcome(declaration.name)

    def batch(self, batch: StreamBatch) -> None:
        """A query has finished a batch."""
        query = self._by_name.get(batch.query)
        if query is None:
            query = self._by_name[batch.query] = QueryOutcome(batch.query)
            self.outcome.queries.append(query)
        query.batches += 1
        query.records += batch.records
        query.late += batch.late
        self._say_growth(query.late, f"rows came too late for {query.name}, and were left out")
        for name, count in batch.observed.items():
            source = self._sources.get(name)
            if source is not None and count:
                total = self.outcome.malformed.get(source.name, 0) + count
                self.outcome.malformed[source.name] = total
                end = "go to the dead letters" if source.on_malformed == "dead-letter" else "are skipped"
                self._say_growth(total, f"malformed values of {source.name}, which {end}")
        self._progress.batch(batch)

    def _say_growth(self, total: int, what: str) -> None:
        """Say a count when it begins, and whenever it has doubled: often enough, and never too often."""
        if total and total >= 2 * self._said.get(what, 0):
            self._said[what] = total
            self._progress.say(f"{total} {what}")

    def say(self, text: str) -> None:
        """A sentence that whoever watches should read."""
        self._progress.say(text)
