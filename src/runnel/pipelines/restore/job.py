"""The restore job: an archive, or the folder of a stopped broker, back into a topic."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from runnel.model.ids import TopicPartition
from runnel.pipelines.archive.layout import (
    NAMESPACE,
    PARTITIONS,
    archived_groups,
    archived_offsets,
    archived_topics,
    open_archive,
)
from runnel.pipelines.broker import BrokerView
from runnel.pipelines.errors import BadOption, NoSuchTable, UnknownTopic
from runnel.pipelines.progress import Progress
from runnel.pipelines.restore.data_folder import held_data_folder
from runnel.pipelines.restore.groups import GroupMove, committed_by, move_group
from runnel.pipelines.restore.trail import find_trail
from runnel.pipelines.restore.writing import RESULT, Target, in_use, write_rows
from runnel.pipelines.tables import open_catalog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DAY_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOptions:
    """What to restore, from where, and to where."""

    bootstrap: str
    topic: str
    """The topic as it was called when it was archived, or in the folder."""
    target: str | None = None
    """The topic to restore to; None for the same name."""
    warehouse: str | None = None
    """The archive, or:"""
    folder: str | None = None
    """The data folder of a broker that is not running."""
    namespace: str = NAMESPACE
    catalog: Mapping[str, str] = field(default_factory=dict)
    until_ms: int | None = None
    """Records with a timestamp up to this one, and itself; others are left out wherever they stand."""
    until_offsets: Mapping[int, int] = field(default_factory=dict)
    """Per partition, the first offset that is left out, and all after it."""
    groups: tuple[str, ...] = ()
    groups_bootstrap: str | None = None
    """A broker that knows how far the groups had read; None for the folder, the target's, or the archive."""
    partitions: int | None = None
    is_appending: bool = False
    transaction_records: int = 50_000


@dataclass(slots=True)
class PartitionRestored:
    """What was written to one partition."""

    partition: int
    records: int
    records_before: int
    """Those that an earlier run of this restore had written."""


@dataclass(slots=True)
class RestoreOutcome:
    """What a restore did."""

    topic: str
    target: str
    partitions: list[PartitionRestored] = field(default_factory=list)
    groups: list[GroupMove] = field(default_factory=list)
    damages: list[str] = field(default_factory=list)
    """What the folder has lost: sentences."""
    notes: list[str] = field(default_factory=list)

    @property
    def records(self) -> int:
        return sum(partition.records for partition in self.partitions)

    @property
    def is_fine(self) -> bool:
        return not self.damages


@dataclass(slots=True)
class _Source:
    """Rows to restore, and what is known about the topic they are of."""

    frame: "DataFrame"
    partitions: int
    groups: dict[str, dict[int, int]]
    """How far groups had read, as the source knows it."""
    damages: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def run(session: "SparkSession", options: RestoreOptions, progress: Progress) -> RestoreOutcome:
    """Restore a topic. After a crash, run it again with the same options: it goes on where it was."""
    target = options.target or options.topic
    with BrokerView(options.bootstrap) as broker, _source(session, options, progress) as source:
        outcome = RestoreOutcome(options.topic, target, damages=source.damages, notes=list(source.notes))
        places = _group_places(options, broker, source)
        outcome.notes += _ready_topic(broker, options, target, source.partitions)
        with progress.tasks(session, f"restoring {target}"):
            outcome.partitions = _write(session, options, target, source)
        for group, committed in places.items():
            outcome.groups += move_group(broker, group, committed, options.topic, target)
    return outcome


# Where rows come from.


@contextmanager
def _source(session: "SparkSession", options: RestoreOptions, progress: Progress) -> Iterator[_Source]:
    if (options.warehouse is None) == (options.folder is None):
        raise BadOption("say where to restore from: an archive, or the data folder of a stopped broker")
    if options.folder is not None:
        with held_data_folder(options.folder) as folder:
            with progress.tasks(session, f"checking the files of {options.topic}"):
                scans = folder.scan(session, options.topic)
            torn = [
                f"{scan.topic}-{scan.partition} ends with {scan.torn_bytes} bytes that are no whole batch"
                for scan in scans
                if scan.torn_bytes
            ]
            yield _Source(
                _wanted(folder.read(session, scans), options),
                max(scan.partition for scan in scans) + 1,
                _by_number(folder.group_offsets(), options.topic) if options.groups else {},
                [damage for scan in scans for damage in scan.damages],
                torn,
            )
        return
    with open_catalog(str(options.warehouse), options.catalog) as catalog:
        try:
            table = open_archive(catalog, options.namespace, options.topic)
        except NoSuchTable:
            names = ", ".join(archived_topics(catalog, options.namespace)) or "none"
            raise UnknownTopic(f"{options.topic} is not archived here; these are: {names}") from None
        properties = table.properties()
        count = max([int(properties.get(PARTITIONS, 1)) - 1, *archived_offsets(properties)]) + 1
        rows = _wanted(table.read(session, _days(options)), options)
        yield _Source(rows, count, archived_groups(properties))


def _days(options: RestoreOptions) -> str:
    """Which days of an archive are read at all, as Iceberg says it."""
    if options.until_ms is None:
        return "partition >= 0"
    return f"day <= '{datetime.fromtimestamp(options.until_ms / 1000, UTC).date()}'"


def _wanted(frame: "DataFrame", options: RestoreOptions) -> "DataFrame":
    """The rows up to the point in time or the offsets, with what is written of them."""
    rows = frame.select(
        "partition",
        "offset",
        F.expr("unix_millis(timestamp)").alias("timestamp_ms"),
        "key",
        "value",
        "headers",
    )
    if options.until_ms is not None:
        rows = rows.where(F.col("timestamp_ms") <= options.until_ms)
    for partition, offset in options.until_offsets.items():
        rows = rows.where((F.col("partition") != partition) | (F.col("offset") < offset))
    return rows


def _by_number(groups: Mapping[str, Mapping[TopicPartition, int]], topic: str) -> dict[str, dict[int, int]]:
    return {
        group: {
            partition.partition: offset for partition, offset in places.items() if partition.topic == topic
        }
        for group, places in groups.items()
    }


# Where they go.


def _ready_topic(broker: BrokerView, options: RestoreOptions, target: str, partitions: int) -> list[str]:
    """Make the topic if it is missing, or see that it can be written to; what its owner should know."""
    wanted = options.partitions or partitions
    try:
        view = broker.topic(target)
    except UnknownTopic:
        # Old timestamps are kept, and the usual retention would delete such records within minutes.
        broker.create_topic(target, partitions=wanted, settings={"retention.ms": "-1"})
        return [f"topic {target} was made with {wanted} partitions and retention.ms=-1: set what you want"]
    if len(view.partitions) < partitions:
        raise BadOption(
            f"topic {target} has {len(view.partitions)} partitions, and {options.topic} had {partitions}: "
            "restore to another topic"
        )
    if not options.is_appending:
        _check_unused(broker, options.topic, [TopicPartition(target, number) for number in range(partitions)])
    return _warnings(broker.topic_settings(target), target)


def _check_unused(broker: BrokerView, source_topic: str, partitions: Sequence[TopicPartition]) -> None:
    for partition in partitions:
        trail = broker.run(partial(find_trail, partition=partition, topic=source_topic))
        if trail.has_records and trail.last_offset is None:
            raise in_use(partition, source_topic)


def _warnings(settings: Mapping[str, str | None], target: str) -> list[str]:
    notes = []
    retention_ms = int(settings.get("retention.ms") or -1)
    if retention_ms >= 0 and "delete" in (settings.get("cleanup.policy") or "delete"):
        notes.append(
            f"topic {target} keeps records for {retention_ms / DAY_MS:g} days by their timestamps, which are "
            "kept: older records may be deleted soon (retention.ms=-1 prevents it)"
        )
    if settings.get("message.timestamp.type") == "LogAppendTime":
        notes.append(f"topic {target} stamps records itself: the old timestamps are in a header only")
    return notes


def _write(
    session: "SparkSession", options: RestoreOptions, target: str, source: _Source
) -> list[PartitionRestored]:
    place = Target(
        options.bootstrap,
        target,
        options.topic,
        options.is_appending,
        transaction_records=options.transaction_records,
    )
    rows = source.frame.repartition(source.partitions, "partition").sortWithinPartitions(
        "partition", "offset"
    )
    written = rows.mapInArrow(partial(write_rows, place), RESULT).collect()
    return sorted(
        (PartitionRestored(row["partition"], row["records"], row["records_before"]) for row in written),
        key=lambda restored: restored.partition,
    )


def _group_places(options: RestoreOptions, broker: BrokerView, source: _Source) -> dict[str, dict[int, int]]:
    """How far each group had read. Asked for before anything is written: without it, nothing should be."""
    places: dict[str, dict[int, int]] = {}
    for group in options.groups:
        if options.groups_bootstrap is not None:
            with BrokerView(options.groups_bootstrap) as other:
                places[group] = committed_by(other, group, options.topic)
        elif options.folder is not None:
            places[group] = source.groups.get(group, {})
        else:
            # The broker knows it better, if it is the one that the archive is of.
            places[group] = committed_by(broker, group, options.topic) or source.groups.get(group, {})
        if not places[group]:
            raise BadOption(f"group {group} has committed no offset of {options.topic} there")
    return places
