"""The restore job: an archive, or the folder of a stopped broker, back into a topic."""

from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from runnel.client.errors import BrokerError
from runnel.model.errors import ErrorCode
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
from runnel.pipelines.errors import BadOption, NoSuchTable, PipelineError, UnknownTopic
from runnel.pipelines.locations import check_location
from runnel.pipelines.progress import Progress
from runnel.pipelines.restore.data_folder import DataFolder, FoundGroups, held_data_folder
from runnel.pipelines.restore.groups import GroupMove, committed_by, move_group, read_on
from runnel.pipelines.restore.segments import Scan
from runnel.pipelines.restore.trail import Trail, trail_in_sight
from runnel.pipelines.restore.writing import RESULT, Target, write_rows
from runnel.pipelines.tables import open_catalog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from runnel.client.cluster import TopicView

DAY_MS = 24 * 60 * 60 * 1000

# Old timestamps are kept, and the usual retention would delete such records within minutes.
_KEEP = {"retention.ms": "-1"}
# As much as a broker takes in one request, by default: a record was never larger, and its trail
# makes it a little longer than the limit that it once passed.
_TAKE_LARGE = {"max.message.bytes": str(100 * 1024 * 1024)}
# Other clocks may have been wrong. Kafka knows these since version 3.6.
_TAKE_ANY_TIME = {
    "message.timestamp.before.max.ms": str(2**63 - 1),
    "message.timestamp.after.max.ms": str(2**63 - 1),
}
_NOT_TAKEN = (ErrorCode.INVALID_CONFIG, ErrorCode.POLICY_VIOLATION)


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
    """Records with a timestamp up to this one, and itself; others are omitted, whatever their offset."""
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
    """Restore a topic. After a crash, run it again with the same options: it resumes where it stopped."""
    target = _target(options)
    with BrokerView(options.bootstrap) as broker, _source(session, options, progress) as source:
        outcome = RestoreOutcome(
            options.topic, target.topic, damages=list(source.damages), notes=list(source.notes)
        )
        view = _existing(broker, target.topic)
        trails = {} if view is None else _trails(broker, options, target, len(view.partitions))
        restored = {number for number, trail in trails.items() if trail.last_offset is not None}
        # Asked before anything is written: without an answer, nothing should be.
        _group_places(options, broker, source, target, restored)
        outcome.notes += _ready_topic(broker, options, target, source.partitions, view, trails)
        with progress.tasks(session, f"restoring {target.topic}"):
            outcome.partitions = _write(session, target, source)
        restored |= {part.partition for part in outcome.partitions if part.records_before}
        places, left = _group_places(options, broker, source, target, restored)
        outcome.notes += left
        for group, committed in places.items():
            outcome.groups += move_group(broker, group, committed, options.topic, target.topic)
    return outcome


def _target(options: RestoreOptions) -> Target:
    return Target(
        options.bootstrap,
        options.target or options.topic,
        options.topic,
        options.is_appending,
        transaction_records=options.transaction_records,
        until_ms=options.until_ms,
        until_offsets=dict(options.until_offsets),
    )


# Where rows come from.


@contextmanager
def _source(session: "SparkSession", options: RestoreOptions, progress: Progress) -> Iterator[_Source]:
    if (options.warehouse is None) == (options.folder is None):
        raise BadOption("say where to restore from: an archive, or the data folder of a stopped broker")
    if options.folder is not None:
        with held_data_folder(options.folder) as folder:
            with progress.tasks(session, f"checking the files of {options.topic}"):
                scans = folder.scan(session, options.topic)
            yield _from_folder(session, options, folder, scans)
        return
    check_location(session, str(options.warehouse))
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


def _from_folder(
    session: "SparkSession", options: RestoreOptions, folder: DataFolder, scans: list[Scan]
) -> _Source:
    groups = folder.group_offsets() if options.groups else FoundGroups({})
    torn = [
        f"{scan.place} ends with {scan.torn_bytes} bytes that are no whole batch"
        for scan in scans
        if scan.torn_bytes
    ]
    damages = [*(damage for scan in scans for damage in scan.damages), *groups.damages]
    return _Source(
        _wanted(folder.read(session, scans), options),
        max(scan.partition for scan in scans) + 1,
        _by_number(groups.committed, options.topic),
        # What is lost of the coordinator's log may be known from the topic and from groups.
        list(dict.fromkeys(damages)),
        [*torn, *(note for scan in scans for note in scan.notes), *groups.notes],
    )


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


def _existing(broker: BrokerView, topic: str) -> "TopicView | None":
    try:
        return broker.topic(topic)
    except UnknownTopic:
        return None


def _trails(broker: BrokerView, options: RestoreOptions, target: Target, partitions: int) -> dict[int, Trail]:
    """What earlier runs have left in each partition, as far as it can be seen before any is taken over."""
    is_limited = options.until_ms is not None or options.until_offsets
    if options.is_appending and not (options.groups or is_limited):
        # Behind what others wrote it may take long to find, and the writers look for themselves.
        return {}
    return {
        number: broker.run(
            partial(trail_in_sight, partition=TopicPartition(target.topic, number), topic=target.source_topic)
        )
        for number in range(partitions)
    }


def _ready_topic(
    broker: BrokerView,
    options: RestoreOptions,
    target: Target,
    partitions: int,
    view: "TopicView | None",
    trails: Mapping[int, Trail],
) -> list[str]:
    """Make the topic if it is missing, or see that it can be written to; what its owner should know."""
    if view is None:
        return [make_topic(broker, target.topic, options.partitions or partitions)]
    if len(view.partitions) < partitions:
        raise BadOption(
            f"topic {target.topic} has {len(view.partitions)} partitions, and {options.topic} had "
            f"{partitions}: restore to another topic"
        )
    for number in range(partitions):
        if number in trails:
            target.check(number, trails[number])
    return _warnings(broker.topic_settings(target.topic), target.topic)


def make_topic(broker: BrokerView, topic: str, partitions: int) -> str:
    """Make a topic that takes records as they once were taken, as far as the broker lets us; how it is."""
    chosen = {**_KEEP, **_TAKE_LARGE, **_TAKE_ANY_TIME}
    for settings in (chosen, {**_KEEP, **_TAKE_LARGE}, _KEEP):
        try:
            broker.create_topic(topic, partitions=partitions, settings=settings)
        except PipelineError as error:
            refused = error.__cause__
            if settings is _KEEP or not (isinstance(refused, BrokerError) and refused.error in _NOT_TAKEN):
                raise
        else:
            break
    listed = ", ".join(f"{name}={value}" for name, value in settings.items())
    return f"topic {topic} was created with {partitions} partitions and {listed}: set what you want"


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


def _write(session: "SparkSession", target: Target, source: _Source) -> list[PartitionRestored]:
    rows = source.frame.repartition(source.partitions, "partition").sortWithinPartitions(
        "partition", "offset"
    )
    written = rows.mapInArrow(partial(write_rows, target), RESULT).collect()
    return sorted(
        (PartitionRestored(row["partition"], row["records"], row["records_before"]) for row in written),
        key=lambda restored: restored.partition,
    )


def _group_places(
    options: RestoreOptions,
    broker: BrokerView,
    source: _Source,
    target: Target,
    restored: Container[int],
) -> tuple[dict[str, dict[int, int]], list[str]]:
    """How far each group had read, and which of them are left where they are.

    Those are left that have read on in partitions which an earlier run has `restored`.
    """
    places: dict[str, dict[int, int]] = {}
    notes: list[str] = []
    for group in options.groups:
        # Such an offset is one of the restored topic: to translate it would lead anywhere.
        left = read_on(broker, group, options.topic, target.topic, restored)
        notes += [
            f"group {group} has read on in {target.topic}-{number} since that was restored, up to offset "
            f"{offset}: it is left there"
            for number, offset in sorted(left.items())
        ]
        places[group] = _group_place(options, broker, source, group, left)
        if not places[group] and not left:
            raise BadOption(f"group {group} has committed no offset of {options.topic} there")
    return places, notes


def _group_place(
    options: RestoreOptions, broker: BrokerView, source: _Source, group: str, left: Container[int]
) -> dict[int, int]:
    known = source.groups.get(group, {})
    if options.groups_bootstrap is not None:
        with BrokerView(options.groups_bootstrap) as other:
            known = committed_by(other, group, options.topic)
    elif options.folder is None:
        # The broker knows it better, if it is the one that the archive is of.
        here = committed_by(broker, group, options.topic)
        known = {number: place for number, place in here.items() if number not in left} or known
    return {number: place for number, place in known.items() if number not in left}
