"""The restore job: writes an archive, or the data folder of a stopped broker, back to a topic."""

from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from runnel.client.errors import BrokerError
from runnel.client.properties import NO_PROPERTIES, ClientProperties
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
from runnel.pipelines.restore.data_folder import DataFolder, FoundGroups, locked_data_folder
from runnel.pipelines.restore.groups import GroupMove, commits_since_restore, committed_by, move_group
from runnel.pipelines.restore.restore_state import RestoreState, visible_restore_state
from runnel.pipelines.restore.segments import Scan
from runnel.pipelines.restore.writing import RESULT, RestoreTarget, write_rows
from runnel.pipelines.tables import open_catalog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from runnel.client.cluster import TopicView

DAY_MS = 24 * 60 * 60 * 1000

# Timestamps are preserved, and the default retention would delete old records within minutes.
_NO_RETENTION = {"retention.ms": "-1"}
# The default of socket.request.max.bytes: no record was larger, and the restore headers may push a record
# over the limit that it passed before.
_LARGE_MESSAGES = {"max.message.bytes": str(100 * 1024 * 1024)}
# Accept any timestamp. Kafka has these settings since version 3.6.
_ANY_TIMESTAMP = {
    "message.timestamp.before.max.ms": str(2**63 - 1),
    "message.timestamp.after.max.ms": str(2**63 - 1),
}
_REJECTED = (ErrorCode.INVALID_CONFIG, ErrorCode.POLICY_VIOLATION)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOptions:
    """The options of a restore."""

    bootstrap: str
    topic: str
    """The name of the topic in the archive or the data folder."""
    target: str | None = None
    """The topic to restore to; None for the same name."""
    warehouse: str | None = None
    """The archive, or:"""
    folder: str | None = None
    """The data folder of a stopped broker."""
    namespace: str = NAMESPACE
    catalog: Mapping[str, str] = field(default_factory=dict)
    until_ms: int | None = None
    """Omit records with a later timestamp, at any offset."""
    until_offsets: Mapping[int, int] = field(default_factory=dict)
    """The end offset per partition; records from it on are omitted."""
    groups: tuple[str, ...] = ()
    groups_bootstrap: str | None = None
    """A broker with the committed offsets; None for the data folder, the target broker or the archive."""
    partitions: int | None = None
    is_appending: bool = False
    transaction_records: int = 50_000
    properties: ClientProperties = NO_PROPERTIES
    """Client properties of TLS and SASL."""


@dataclass(slots=True)
class PartitionRestored:
    """What was written to one partition."""

    partition: int
    records: int
    records_before: int
    """Records written by an earlier run of this restore."""


@dataclass(slots=True)
class RestoreOutcome:
    """The result of a restore."""

    topic: str
    target: str
    partitions: list[PartitionRestored] = field(default_factory=list)
    groups: list[GroupMove] = field(default_factory=list)
    damages: list[str] = field(default_factory=list)
    """Descriptions of records that the data folder has lost."""
    notes: list[str] = field(default_factory=list)

    @property
    def records(self) -> int:
        return sum(partition.records for partition in self.partitions)

    @property
    def is_fine(self) -> bool:
        return not self.damages


@dataclass(slots=True)
class _Source:
    """The rows to restore, and metadata of their topic."""

    frame: "DataFrame"
    partitions: int
    groups: dict[str, dict[int, int]]
    """Committed offsets of groups, as known to the source."""
    damages: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def run(session: "SparkSession", options: RestoreOptions, progress: Progress) -> RestoreOutcome:
    """Restore a topic. After a crash, run it again with the same options: it resumes."""
    target = _target(options)
    with (
        BrokerView(options.bootstrap, properties=options.properties) as broker,
        _source(session, options, progress) as source,
    ):
        outcome = RestoreOutcome(
            options.topic, target.topic, damages=list(source.damages), notes=list(source.notes)
        )
        view = _existing(broker, target.topic)
        states = {} if view is None else _trails(broker, options, target, len(view.partitions))
        restored = {number for number, state in states.items() if state.last_offset is not None}
        # Fail before anything is written if committed offsets cannot be read.
        _group_offsets(options, broker, source, target, restored)
        outcome.notes += _prepare_topic(broker, options, target, source.partitions, view, states)
        with progress.tasks(session, f"restoring {target.topic}"):
            outcome.partitions = _write(session, target, source)
        restored |= {part.partition for part in outcome.partitions if part.records_before}
        offsets, skipped = _group_offsets(options, broker, source, target, restored)
        outcome.notes += skipped
        for group, committed in offsets.items():
            outcome.groups += move_group(broker, group, committed, options.topic, target.topic)
    return outcome


def _target(options: RestoreOptions) -> RestoreTarget:
    return RestoreTarget(
        options.bootstrap,
        options.target or options.topic,
        options.topic,
        options.is_appending,
        transaction_records=options.transaction_records,
        until_ms=options.until_ms,
        until_offsets=dict(options.until_offsets),
        properties=options.properties,
    )


# Reading.


@contextmanager
def _source(session: "SparkSession", options: RestoreOptions, progress: Progress) -> Iterator[_Source]:
    if (options.warehouse is None) == (options.folder is None):
        raise BadOption("no source is set: set an archive, or the data folder of a stopped broker")
    if options.folder is not None:
        with locked_data_folder(options.folder) as folder:
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
            raise UnknownTopic(f"{options.topic} is not archived here; archived topics: {names}") from None
        properties = table.properties()
        count = max([int(properties.get(PARTITIONS, 1)) - 1, *archived_offsets(properties)]) + 1
        rows = _wanted(table.read(session, _days(options)), options)
        yield _Source(rows, count, archived_groups(properties))


def _from_folder(
    session: "SparkSession", options: RestoreOptions, folder: DataFolder, scans: list[Scan]
) -> _Source:
    groups = folder.group_offsets() if options.groups else FoundGroups({})
    torn = [
        f"{scan.topic_partition} ends with {scan.torn_bytes} bytes of an incomplete batch"
        for scan in scans
        if scan.torn_bytes
    ]
    damages = [*(damage for scan in scans for damage in scan.damages), *groups.damages]
    return _Source(
        _wanted(folder.read(session, scans), options),
        max(scan.partition for scan in scans) + 1,
        _by_number(groups.committed, options.topic),
        # Damage of the coordinator's log may be reported for the topic and for groups.
        list(dict.fromkeys(damages)),
        [*torn, *(note for scan in scans for note in scan.notes), *groups.notes],
    )


def _days(options: RestoreOptions) -> str:
    """An Iceberg filter for the days to read."""
    if options.until_ms is None:
        return "partition >= 0"
    return f"day <= '{datetime.fromtimestamp(options.until_ms / 1000, UTC).date()}'"


def _wanted(frame: "DataFrame", options: RestoreOptions) -> "DataFrame":
    """The columns to write, filtered by timestamp and end offsets."""
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
            partition.partition: offset for partition, offset in offsets.items() if partition.topic == topic
        }
        for group, offsets in groups.items()
    }


# Writing.


def _existing(broker: BrokerView, topic: str) -> "TopicView | None":
    try:
        return broker.topic(topic)
    except UnknownTopic:
        return None


def _trails(
    broker: BrokerView, options: RestoreOptions, target: RestoreTarget, partitions: int
) -> dict[int, RestoreState]:
    """The progress of earlier runs in each partition, as far as it is visible without fencing writers."""
    is_limited = options.until_ms is not None or options.until_offsets
    if options.is_appending and not (options.groups or is_limited):
        # It may take long to find after records of others, and the writers look it up themselves.
        return {}
    return {
        number: broker.run(
            partial(
                visible_restore_state,
                partition=TopicPartition(target.topic, number),
                topic=target.source_topic,
            )
        )
        for number in range(partitions)
    }


def _prepare_topic(
    broker: BrokerView,
    options: RestoreOptions,
    target: RestoreTarget,
    partitions: int,
    view: "TopicView | None",
    states: Mapping[int, RestoreState],
) -> list[str]:
    """Create the topic, or check that it can be written to; returns notes for the user."""
    if view is None:
        return [create_target_topic(broker, target.topic, options.partitions or partitions)]
    if len(view.partitions) < partitions:
        raise BadOption(
            f"topic {target.topic} has {len(view.partitions)} partitions, and {options.topic} had "
            f"{partitions}: restore to another topic"
        )
    for number in range(partitions):
        if number in states:
            target.check(number, states[number])
    return _warnings(broker.topic_settings(target.topic), target.topic)


def create_target_topic(broker: BrokerView, topic: str, partitions: int) -> str:
    """Create a topic that accepts all records, as far as the broker allows; returns a note for the user."""
    chosen = {**_NO_RETENTION, **_LARGE_MESSAGES, **_ANY_TIMESTAMP}
    for settings in (chosen, {**_NO_RETENTION, **_LARGE_MESSAGES}, _NO_RETENTION):
        try:
            broker.create_topic(topic, partitions=partitions, settings=settings)
        except PipelineError as error:
            refused = error.__cause__
            if settings is _NO_RETENTION or not (
                isinstance(refused, BrokerError) and refused.error in _REJECTED
            ):
                raise
        else:
            break
    listed = ", ".join(f"{name}={value}" for name, value in settings.items())
    return (
        f"topic {topic} was created with {partitions} partitions and {listed}: adjust its settings as needed"
    )


def _warnings(settings: Mapping[str, str | None], target: str) -> list[str]:
    notes = []
    retention_ms = int(settings.get("retention.ms") or -1)
    if retention_ms >= 0 and "delete" in (settings.get("cleanup.policy") or "delete"):
        notes.append(
            f"topic {target} keeps records for {retention_ms / DAY_MS:g} days by their timestamps, which are "
            "preserved: older records may be deleted soon (retention.ms=-1 prevents it)"
        )
    if settings.get("message.timestamp.type") == "LogAppendTime":
        notes.append(f"topic {target} uses LogAppendTime: the original timestamps are in a header only")
    return notes


def _write(session: "SparkSession", target: RestoreTarget, source: _Source) -> list[PartitionRestored]:
    rows = source.frame.repartition(source.partitions, "partition").sortWithinPartitions(
        "partition", "offset"
    )
    written = rows.mapInArrow(partial(write_rows, target), RESULT).collect()
    return sorted(
        (PartitionRestored(row["partition"], row["records"], row["records_before"]) for row in written),
        key=lambda restored: restored.partition,
    )


def _group_offsets(
    options: RestoreOptions,
    broker: BrokerView,
    source: _Source,
    target: RestoreTarget,
    restored: Container[int],
) -> tuple[dict[str, dict[int, int]], list[str]]:
    """The committed offsets to translate, and notes about groups that are not moved.

    A group that has committed since in partitions which an earlier run has `restored` is not moved.
    """
    offsets: dict[str, dict[int, int]] = {}
    notes: list[str] = []
    for group in options.groups:
        # Such an offset is already one of the restored topic and must not be translated.
        left = commits_since_restore(broker, group, options.topic, target.topic, restored)
        notes += [
            f"group {group} has committed offset {offset} of {target.topic}-{number} since it was "
            f"restored: the group is not moved there"
            for number, offset in sorted(left.items())
        ]
        offsets[group] = _offsets_of_group(options, broker, source, group, left)
        if not offsets[group] and not left:
            raise BadOption(f"group {group} has no committed offset of {options.topic}")
    return offsets, notes


def _offsets_of_group(
    options: RestoreOptions, broker: BrokerView, source: _Source, group: str, left: Container[int]
) -> dict[int, int]:
    known = source.groups.get(group, {})
    if options.groups_bootstrap is not None:
        with BrokerView(options.groups_bootstrap, properties=options.properties) as other:
            known = committed_by(other, group, options.topic)
    elif options.folder is None:
        # The broker is more recent than the archive, if it is the archived one.
        here = committed_by(broker, group, options.topic)
        known = {number: offset for number, offset in here.items() if number not in left} or known
    return {number: offset for number, offset in known.items() if number not in left}
