"""The archive job: copies topics to tables, once or continuously, and maintains the tables."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from runnel.client.offsets import EARLIEST
from runnel.client.properties import NO_PROPERTIES, ClientProperties
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
from runnel.pipelines.checkpoint import locked_checkpoint
from runnel.pipelines.client_options import connection_options
from runnel.pipelines.errors import BadCheckpoint, BadOption
from runnel.pipelines.locations import check_location
from runnel.pipelines.progress import Progress
from runnel.pipelines.queries import run_queries
from runnel.pipelines.restore.groups import committed_by
from runnel.pipelines.source.columns import with_schema
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
"""Small files of a day that trigger compaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    """The options of an archive."""

    bootstrap: str
    warehouse: str
    checkpoint: str
    properties: ClientProperties = NO_PROPERTIES
    """Client properties of TLS and SASL."""
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    namespace: str = NAMESPACE
    catalog: Mapping[str, str] = field(default_factory=dict)
    once: bool = True
    trigger_s: float = TRIGGER_S
    records_per_batch: int | None = None
    value_format: str = "bytes"
    value_schema: str | None = None
    value_registry: Mapping[str, str] = field(default_factory=dict)
    """Options that name the schema of values in a registry."""
    retention_days: int | None = None
    upkeep: UpkeepPolicy = FULL_UPKEEP
    table_properties: Mapping[str, str] = field(default_factory=dict)
    """Iceberg table properties, also set on existing tables."""
    is_compacting: bool = False
    """Merge all small files at the end, even if there are few."""
    is_loss_accepted: bool = False
    """Continue if records were deleted before they were archived."""


@dataclass(slots=True)
class ArchiveOutcome:
    """The result of an archive run."""

    topics: list[TopicArchived] = field(default_factory=list)
    batches: int = 0
    was_stopped: bool = False


def run(session: "SparkSession", options: ArchiveOptions, progress: Progress) -> ArchiveOutcome:
    """Archive all available records, or run until stopped."""
    check_location(session, options.warehouse)
    # The schema of this run, also if a newer version is registered.
    source = with_schema(_source(options))
    with (
        open_catalog(options.warehouse, options.catalog) as catalog,
        locked_checkpoint(
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
    """The options of the source. The raw value is kept, and decoded into another column."""
    options_ = {
        **connection_options(options.bootstrap, options.properties),
        "kafka.group.id": f"runnel-{options.namespace}",
        "kafka.client.id": "runnel-archive",
        "failOnDataLoss": str(not options.is_loss_accepted).lower(),
    }
    if options.topics and options.pattern is None:
        options_["subscribe"] = ",".join(options.topics)
    elif options.pattern is not None and not options.topics:
        options_["subscribePattern"] = options.pattern
    else:
        raise BadOption("no topics to archive: set topic names or a pattern")
    if options.records_per_batch is not None:
        options_["maxOffsetsPerTrigger"] = str(options.records_per_batch)
    return options_


def _source(options: ArchiveOptions) -> SourceOptions:
    options_ = {**_read_options(options), "valueFormat": options.value_format, **options.value_registry}
    if options.value_schema is not None:
        options_["valueSchema"] = options.value_schema
    return read_options(options_)


# Starting offsets.


def _start(
    session: "SparkSession",
    options: ArchiveOptions,
    partitions: list[TopicPartition],
    archiver: BatchArchiver,
    checkpoint: str,
) -> str:
    """The starting offsets; BadCheckpoint if the checkpoint is ahead of the tables."""
    archived = {
        TopicPartition(topic, number): offset
        for topic, outcome in archiver.topics.items()
        for number, offset in outcome.next_offsets.items()
    }
    ahead = behind(checkpointed_offsets(checkpoint), archived)
    for partition, (begin, end) in ahead.items():
        if partition in partitions and _has_records(session, options, partition, begin, end):
            raise BadCheckpoint(
                f"the checkpoint {checkpoint} is at offset {end} of {partition}, but the archive is at "
                f"{begin}: remove the checkpoint, and the archive resumes from its tables"
            )
    return starting_offsets(partitions, archived)


def _partitions(options: ArchiveOptions, source: SourceOptions) -> Topics:
    with BrokerView(options.bootstrap, properties=options.properties) as broker:
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
    """Are there committed records in the range?"""
    topic, number = partition
    begin = begin or EARLIEST
    frame = (
        session.read.format("runnel")
        .options(**connection_options(options.bootstrap, options.properties))
        .option("assign", f'{{"{topic}": [{number}]}}')
        .option("startingOffsets", f'{{"{topic}": {{"{number}": {begin}}}}}')
        .option("endingOffsets", f'{{"{topic}": {{"{number}": {end}}}}}')
        .option("failOnDataLoss", "false")
    )
    return not frame.load().select("offset").isEmpty()


# Maintenance.


class _Upkeep:
    """Retention and table maintenance, at intervals and at the end."""

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
        """Maintenance at the end of the run."""
        with self._progress.stage("maintaining tables", unit="tables"):
            self._upkeep(2 if self._options.is_compacting else SMALL_FILES_MIN)

    def _store_group_offsets(self) -> None:
        """Store committed offsets, so that a restore from the archive can set them."""
        own = f"runnel-{self._options.namespace}"
        with connected(_source(self._options)) as broker:
            groups = [group for group in broker.groups() if group != own]
            for topic, table in self._archiver.tables.items():
                committed = {group: committed_by(broker, group, topic) for group in groups}
                text = groups_text({group: offsets for group, offsets in committed.items() if offsets})
                if table.properties().get(GROUPS, "{}") != text:
                    table.set_properties({GROUPS: text})

    def _store_read_offsets(self) -> None:
        """Store the offsets read, so that an audit does not report trailing transaction markers as lost."""
        if self._options.is_loss_accepted:
            return  # skipped offsets may be lost records
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
        self._store_read_offsets()
        self._store_group_offsets()
        for topic, table in self._archiver.tables.items():
            outcome = self._archiver.topics[topic]
            if self._options.retention_days is not None:
                oldest = datetime.now(UTC).date() - timedelta(days=self._options.retention_days)
                outcome.rows_removed += remove_before(table, oldest)
            table.ensure_properties(self._options.table_properties)
            done = maintain(self._session, table, self._options.upkeep, small_files_min=files_min)
            outcome.files_merged += done.files_merged
            outcome.files_removed += done.files_removed
