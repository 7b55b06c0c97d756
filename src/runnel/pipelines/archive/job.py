"""The archive job: topics into tables, once or for as long as it runs, and the upkeep of the tables."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from runnel.client.offsets import EARLIEST
from runnel.model.ids import TopicPartition
from runnel.pipelines.archive.batches import BatchArchiver, KnownTopic, TopicArchived
from runnel.pipelines.archive.layout import (
    GROUPS,
    NAMESPACE,
    READ,
    groups_text,
    open_archive,
    read_offsets,
    table_of,
)
from runnel.pipelines.archive.retention import remove_before
from runnel.pipelines.archive.starting import behind, checkpointed_offsets, starting_offsets
from runnel.pipelines.broker import BrokerView
from runnel.pipelines.checkpoint import held_checkpoint
from runnel.pipelines.errors import BadCheckpoint, BadOption
from runnel.pipelines.locations import check_location
from runnel.pipelines.progress import Progress
from runnel.pipelines.queries import run_queries
from runnel.pipelines.restore.groups import committed_by
from runnel.pipelines.source.options import SourceOptions, read_options
from runnel.pipelines.source.resolving import Topics, connected, subscribed
from runnel.pipelines.tables import open_catalog
from runnel.pipelines.tables.upkeep import maintain
from runnel.pipelines.upkeep import FULL_UPKEEP, UpkeepPolicy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TRIGGER_S = 60
"""How often a continuous archive adds a snapshot."""
BATCHES_PER_UPKEEP = 30
SMALL_FILES_MIN = 8
"""So many small files of a day are merged without being asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    """What to archive, and where."""

    bootstrap: str
    warehouse: str
    checkpoint: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    namespace: str = NAMESPACE
    catalog: Mapping[str, str] = field(default_factory=dict)
    once: bool = True
    trigger_s: float = TRIGGER_S
    records_per_batch: int | None = None
    value_format: str = "bytes"
    value_schema: str | None = None
    retention_days: int | None = None
    upkeep: UpkeepPolicy = FULL_UPKEEP
    table_properties: Mapping[str, str] = field(default_factory=dict)
    """Properties of Iceberg tables, set on those that exist as well."""
    is_compacting: bool = False
    """Merge all small files at the end, not only where there are many."""
    is_loss_accepted: bool = False
    """Go on where records were deleted before they could be archived."""


@dataclass(slots=True)
class ArchiveOutcome:
    """What an archive run did."""

    topics: list[TopicArchived] = field(default_factory=list)
    batches: int = 0
    was_stopped: bool = False


def run(session: "SparkSession", options: ArchiveOptions, progress: Progress) -> ArchiveOutcome:
    """Archive what there is, or continue until stopped."""
    check_location(session, options.warehouse)
    source = _source(options)
    with (
        open_catalog(options.warehouse, options.catalog) as catalog,
        held_checkpoint(
            options.checkpoint,
            pipeline="archive",
            sources=[str(source.subscription)],
            sink=f"{options.warehouse} {options.namespace}",
        ) as checkpoint,
    ):
        partitions = _partitions(options, source)
        archiver = BatchArchiver(catalog, options.namespace, source, known_topics(partitions))
        for topic, known in known_topics(partitions).items():
            if catalog.table_exists(table_of(options.namespace, topic)):
                archiver.adopt(topic, open_archive(catalog, options.namespace, topic, known.topic_id))
        upkeep = _Upkeep(session, options, archiver, progress, checkpoint)
        start = _start(session, options, list(partitions), archiver, checkpoint)

        def archive(frame: "DataFrame", batch_id: int) -> None:
            archiver(frame, batch_id)
            upkeep.after_batch()

        reader = session.readStream.format("runnel").options(**_read_options(options), startingOffsets=start)
        writer = reader.load().writeStream.queryName("archive").foreachBatch(archive)
        writer = writer.option("checkpointLocation", checkpoint)
        writer = (
            writer.trigger(availableNow=True)
            if options.once
            else writer.trigger(processingTime=f"{options.trigger_s} seconds")
        )
        ran = run_queries([writer.start()], progress)
        upkeep.run()
    return ArchiveOutcome(
        sorted(archiver.topics.values(), key=lambda topic: topic.topic), ran.batches, ran.was_stopped
    )


def _read_options(options: ArchiveOptions) -> dict[str, str]:
    """The options of the source. The value is kept as it is, and decoded into another column."""
    told = {
        "kafka.bootstrap.servers": options.bootstrap,
        "kafka.group.id": f"runnel-{options.namespace}",
        "kafka.client.id": "runnel-archive",
        "failOnDataLoss": str(not options.is_loss_accepted).lower(),
    }
    if options.topics and options.pattern is None:
        told["subscribe"] = ",".join(options.topics)
    elif options.pattern is not None and not options.topics:
        told["subscribePattern"] = options.pattern
    else:
        raise BadOption("say which topics to archive: their names, or a pattern")
    if options.records_per_batch is not None:
        told["maxOffsetsPerTrigger"] = str(options.records_per_batch)
    return told


def _source(options: ArchiveOptions) -> SourceOptions:
    told = {**_read_options(options), "valueFormat": options.value_format}
    if options.value_schema is not None:
        told["valueSchema"] = options.value_schema
    return read_options(told)


# Where to begin.


def _start(
    session: "SparkSession",
    options: ArchiveOptions,
    partitions: list[TopicPartition],
    archiver: BatchArchiver,
    checkpoint: str,
) -> str:
    """The offsets of a new checkpoint; BadCheckpoint if an old one has passed over what no table has."""
    archived = {
        TopicPartition(topic, number): offset
        for topic, outcome in archiver.topics.items()
        for number, offset in outcome.next_offsets.items()
    }
    passed_over = behind(checkpointed_offsets(checkpoint), archived)
    for partition, (begin, end) in passed_over.items():
        if partition in partitions and _has_records(session, options, partition, begin, end):
            raise BadCheckpoint(
                f"the checkpoint {checkpoint} has passed offset {end} of {partition}, but the archive has it "
                f"up to {begin} only: remove that folder, and the archive resumes from its tables"
            )
    return starting_offsets(partitions, archived)


def _partitions(options: ArchiveOptions, source: SourceOptions) -> Topics:
    with BrokerView(options.bootstrap) as broker:
        return subscribed(broker, source.subscription)


def known_topics(partitions: Topics) -> dict[str, KnownTopic]:
    """The topics of these partitions."""
    counts = Counter(partition.topic for partition in partitions)
    return {
        partition.topic: KnownTopic(topic_id, counts[partition.topic])
        for partition, topic_id in partitions.items()
    }


def _has_records(
    session: "SparkSession", options: ArchiveOptions, partition: TopicPartition, begin: int, end: int
) -> bool:
    """Is there anything in the range that an archive should have? Markers and aborted records are not."""
    topic, number = partition
    begin = begin or EARLIEST
    frame = (
        session.read.format("runnel")
        .option("kafka.bootstrap.servers", options.bootstrap)
        .option("assign", f'{{"{topic}": [{number}]}}')
        .option("startingOffsets", f'{{"{topic}": {{"{number}": {begin}}}}}')
        .option("endingOffsets", f'{{"{topic}": {{"{number}": {end}}}}}')
        .option("failOnDataLoss", "false")
    )
    return not frame.load().select("offset").isEmpty()


# Keeping tables in shape.


class _Upkeep:
    """Retention, merging and removal, every so many batches and at the end."""

    def __init__(
        self,
        session: "SparkSession",
        options: ArchiveOptions,
        archiver: BatchArchiver,
        progress: Progress,
        checkpoint: str,
    ) -> None:
        self._session = session
        self._options = options
        self._archiver = archiver
        self._progress = progress
        self._checkpoint = checkpoint
        self._batches = 0

    def after_batch(self) -> None:
        self._batches += 1
        if self._batches % BATCHES_PER_UPKEEP == 0:
            self._upkeep(SMALL_FILES_MIN)

    def run(self) -> None:
        """At the end: what was asked for, and what is due anyway."""
        with self._progress.stage("looking after the tables", unit="tables"):
            self._upkeep(2 if self._options.is_compacting else SMALL_FILES_MIN)

    def _note_groups(self) -> None:
        """Where consumers were, for the day on which there is nothing left but the archive."""
        own = f"runnel-{self._options.namespace}"
        with connected(_source(self._options)) as broker:
            groups = [group for group in broker.groups() if group != own]
            for topic, table in self._archiver.tables.items():
                places = {group: committed_by(broker, group, topic) for group in groups}
                text = groups_text({group: offsets for group, offsets in places.items() if offsets})
                if table.properties().get(GROUPS, "{}") != text:
                    table.set_properties({GROUPS: text})

    def _note_read(self) -> None:
        """How far batches went that ended with markers: an audit must not take these for lost records."""
        if self._options.is_loss_accepted:
            return  # what was passed over may be lost records
        done = checkpointed_offsets(self._checkpoint)
        for topic, table in self._archiver.tables.items():
            known = read_offsets(table.properties())
            further = {
                f"{READ}{partition.partition}": str(offset)
                for partition, offset in done.items()
                if partition.topic == topic and offset > known.get(partition.partition, 0)
            }
            if further:
                table.set_properties(further)

    def _upkeep(self, files_min: int) -> None:
        self._note_read()
        self._note_groups()
        for topic, table in self._archiver.tables.items():
            outcome = self._archiver.topics[topic]
            if self._options.retention_days is not None:
                oldest = datetime.now(UTC).date() - timedelta(days=self._options.retention_days)
                outcome.rows_removed += remove_before(table, oldest)
            table.ensure_properties(self._options.table_properties)
            done = maintain(self._session, table, self._options.upkeep, small_files_min=files_min)
            outcome.files_merged += done.files_merged
            outcome.files_removed += done.files_removed
