"""The dead-letter job: groups and samples letters, and redrives selected ones."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from runnel.client.properties import NO_PROPERTIES, ClientProperties
from runnel.pipelines.broker import BrokerView
from runnel.pipelines.client_options import connection_options
from runnel.pipelines.dead_letters.letter import DEAD_LETTERS, MARKS, Letter
from runnel.pipelines.dead_letters.letter_filter import LetterFilter
from runnel.pipelines.dead_letters.reading import (
    LetterGroup,
    chosen_frame,
    groups_of,
    letter_of_row,
    letters_frame,
    marked_frame,
)
from runnel.pipelines.dead_letters.redrive import Redriven, Redriver, ensure_marks, redrivable
from runnel.pipelines.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ALL = LetterFilter()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterOptions:
    """The options of the job."""

    bootstrap: str
    properties: ClientProperties = NO_PROPERTIES
    """Client properties of TLS and SASL."""
    topics: tuple[str, ...] = ()
    """Dead-letter topics; empty for all topics with the usual suffix."""
    choice: LetterFilter = ALL
    redrive: bool = False
    dry_run: bool = False
    """With `redrive`: report what would be redriven."""
    limit: int | None = None

    @property
    def connection(self) -> dict[str, str]:
        """The options with which Spark connects to the cluster."""
        return connection_options(self.bootstrap, self.properties)


@dataclass(slots=True)
class DeadLetterOutcome:
    """The result of the job."""

    groups: list[LetterGroup]
    redriven: list[Redriven] = field(default_factory=list)
    is_dry_run: bool = False


def run(session: "SparkSession", options: DeadLetterOptions, progress: Progress) -> DeadLetterOutcome:
    """Group dead letters, and redrive selected ones if requested."""
    with BrokerView(
        options.bootstrap, properties=options.properties, client_id="runnel-dead-letters"
    ) as broker:
        names = {view.name for view in broker.topics()}
        topics = options.topics or tuple(sorted(name for name in names if name.endswith(DEAD_LETTERS)))
        for topic in options.topics:
            broker.topic(topic)
        outcome = DeadLetterOutcome([], is_dry_run=options.dry_run)
        if not topics:
            return outcome
        letters = letters_frame(session, options.connection, topics)
        if options.redrive:
            limit = options.limit
            for topic in topics:
                redriven = _redrive(session, broker, options, letters, topic, limit, progress)
                outcome.redriven.append(redriven)
                limit = None if limit is None else limit - redriven.letters
        with progress.tasks(session, "grouping dead letters"):
            marked = marked_frame(session, options.connection, _with_marks(broker, topics))
            outcome.groups = groups_of(session, letters, marked, options.choice)
    return outcome


def _redrive(
    session: "SparkSession",
    broker: BrokerView,
    options: DeadLetterOptions,
    letters: "DataFrame",
    topic: str,
    limit: int | None,
    progress: Progress,
) -> Redriven:
    own = letters.where(F.col("topic") == topic)
    if options.dry_run:
        with_marks = _with_marks(broker, (topic,))
        return _would_redrive(_chosen(session, options, own, with_marks), broker, topic, limit)
    ensure_marks(broker, topic)
    # Marks are complete only after fencing: until then, another run may be active.
    with Redriver(broker, topic) as redriver, progress.tasks(session, f"redriving {topic}"):
        return redriver.redrive(_chosen(session, options, own, {topic: redriver.topic_id}), limit)


def _chosen(
    session: "SparkSession",
    options: DeadLetterOptions,
    letters: "DataFrame",
    with_marks: Mapping[str, bytes],
) -> Iterator[Letter]:
    chosen = chosen_frame(letters, marked_frame(session, options.connection, with_marks), options.choice)
    return map(letter_of_row, chosen.toLocalIterator())


def _would_redrive(letters: Iterator[Letter], broker: BrokerView, topic: str, limit: int | None) -> Redriven:
    outcome = Redriven(topic)
    counts = {view.name: len(view.partitions) for view in broker.topics()}
    for _, target, _ in islice(redrivable(letters, outcome, counts.get), limit):
        outcome.count_redriven(target)
    return outcome


def _with_marks(broker: BrokerView, topics: tuple[str, ...]) -> dict[str, bytes]:
    """The topics with redriven letters, and their ids."""
    existing = {view.name: view.topic_id for view in broker.topics()}
    return {topic: existing[topic] for topic in topics if topic in existing and topic + MARKS in existing}
