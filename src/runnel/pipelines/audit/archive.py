"""Compares a log with its archive: every committed record must be there once, with the same contents."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from pyiceberg.table import Table
from pyspark.sql import functions as F

from runnel.client.properties import NO_PROPERTIES, ClientProperties
from runnel.model.ids import TopicPartition
from runnel.pipelines.archive.layout import (
    NAMESPACE,
    archived_offsets,
    kept_from,
    open_archive,
    read_offsets,
)
from runnel.pipelines.audit.archive_files import ArchiveFiles
from runnel.pipelines.audit.checker import PartitionResult
from runnel.pipelines.audit.comparison import Comparison
from runnel.pipelines.audit.findings import Finding, Kind, Level, count_text
from runnel.pipelines.broker import BrokerView
from runnel.pipelines.client_options import connection_options
from runnel.pipelines.errors import NoSuchTable
from runnel.pipelines.tables.catalog import open_catalog

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_DAY_MS = 86_400_000
OffsetRanges = Mapping[int, tuple[int, int]]
"""By partition, offsets [start, end)."""


@dataclass(frozen=True, slots=True)
class Archive:
    """The location of an archive."""

    warehouse: str
    namespace: str = NAMESPACE


@dataclass(frozen=True, slots=True)
class ArchivedTopic:
    """The comparison of one topic with its archive."""

    topic: str
    rows: int
    files: int
    findings: list[Finding]


def compare(
    session: "SparkSession",
    bootstrap: str,
    archive: Archive,
    topic: str,
    results: Sequence[PartitionResult],
    properties: ClientProperties = NO_PROPERTIES,
) -> ArchivedTopic:
    """Compare one topic with its table."""
    with open_catalog(archive.warehouse) as catalog:
        try:
            # One snapshot for the whole comparison: a running archive job adds more.
            table = open_archive(catalog, archive.namespace, topic).latest()
        except NoSuchTable as error:
            missing = Finding(Level.NOTICE, Kind.ARCHIVE_BEHIND, topic, -1, -1, -1, str(error))
            return ArchivedTopic(topic, 0, 0, [missing])
        files = ArchiveFiles(table, topic)
    log = _Log(bootstrap, properties, topic, results)
    # Read after the table was opened: all that it contains was in the log before.
    spans = log.spans()
    archived_to = archived_offsets(table.properties)
    rows, findings = files.read(session, lambda kept: _compare(session, table, kept, log, spans))
    findings += lost_before(results, read_offsets(table.properties)) + behind(results, archived_to)
    return ArchivedTopic(topic, rows, len(files.present), files.findings + findings)


class _Log:
    """The log of one topic: when it was checked, and now."""

    def __init__(
        self,
        bootstrap: str,
        properties: ClientProperties,
        topic: str,
        results: Sequence[PartitionResult],
    ) -> None:
        self.topic = topic
        self.results = results
        self._bootstrap = bootstrap
        self._properties = properties
        self._partitions = [TopicPartition(topic, result.partition) for result in results]

    def spans(self) -> OffsetRanges:
        """The current offset range of each partition."""
        view = BrokerView(self._bootstrap, properties=self._properties, client_id="runnel-audit")
        with view as broker:
            ends = broker.latest_offsets(self._partitions)
            starts = broker.earliest_offsets(self._partitions)
        return {each.partition: (starts[each], ends[each]) for each in self._partitions}

    def starts(self) -> dict[int, int]:
        """The current log start offsets."""
        return {partition: start for partition, (start, _) in self.spans().items()}

    def read(self, session: "SparkSession", ranges: OffsetRanges) -> "DataFrame":
        starts = {self.topic: {str(partition): start for partition, (start, _) in ranges.items()}}
        ends = {self.topic: {str(partition): end for partition, (_, end) in ranges.items()}}
        return (
            session.read.format("runnel")
            .options(**connection_options(self._bootstrap, self._properties))
            .option("assign", json.dumps({self.topic: sorted(ranges)}))
            .option("startingOffsets", json.dumps(starts))
            .option("endingOffsets", json.dumps(ends))
            # Records that retention deletes meanwhile are detected afterwards.
            .option("failOnDataLoss", "false")
            .load()
        )


def _compare(
    session: "SparkSession", table: Table, kept: "DataFrame", log: _Log, spans: OffsetRanges
) -> tuple[int, list[Finding]]:
    """The number of rows in the archive, and the differences from the log."""
    findings: list[Finding] = []
    ranges = shared_ranges(log.results, archived_offsets(table.properties), spans)
    if ranges:
        is_wanted = is_retained(kept_from(table.properties))
        findings += Comparison(
            log.topic,
            log.read(session, ranges).where(is_wanted),
            _within(kept, ranges).where(is_wanted),
            starts=log.starts,
            is_compacted=any(result.is_compacted for result in log.results),
        ).findings()
    last = kept.groupBy("partition").agg(F.max("offset").alias("last")).collect()
    findings += beyond(log.topic, {row["partition"]: row["last"] for row in last}, spans)
    return kept.count(), findings


def is_retained(oldest: date) -> "Column":
    """Exclude what the archive's own retention deleted; it keeps records without a timestamp."""
    timestamp_ms = F.unix_millis("timestamp")
    return (timestamp_ms < 0) | (timestamp_ms >= (oldest - date(1970, 1, 1)).days * _DAY_MS)


def shared_ranges(
    results: Sequence[PartitionResult], archived_to: Mapping[int, int], spans: OffsetRanges
) -> dict[int, tuple[int, int]]:
    """The offsets that both should have, by partition: damaged logs are compared up to the damage."""
    ranges = {}
    for result in results:
        damage = [
            entry.first_offset for entry in result.findings if entry.kind in (Kind.DAMAGED, Kind.UNREADABLE)
        ]
        # Retention may have deleted more since the log was checked.
        start = max(result.start_offset, spans[result.partition][0])
        end = min([result.end_offset, archived_to.get(result.partition, -1), *damage])
        if end > start:
            ranges[result.partition] = start, end
    return ranges


def _within(kept: "DataFrame", ranges: OffsetRanges) -> "DataFrame":
    condition = F.lit(False)
    for partition, (start, end) in ranges.items():
        inside = (F.col("offset") >= start) & (F.col("offset") < end)
        condition = condition | ((F.col("partition") == partition) & inside)
    return kept.where(condition)


def beyond(topic: str, last: Mapping[int, int], spans: OffsetRanges) -> list[Finding]:
    """Archived records at or after the end of the log."""
    return [
        Finding(
            Level.FAULT,
            Kind.ARCHIVE_EXTRA,
            topic,
            partition,
            spans[partition][1],
            offset,
            f"the archive continues to offset {offset}, the log ends before",
        )
        for partition, offset in sorted(last.items())
        if partition in spans and offset >= spans[partition][1]
    ]


def behind(results: Sequence[PartitionResult], archived_to: Mapping[int, int]) -> list[Finding]:
    """Offsets that are not archived yet; not a fault, as the log has them."""
    findings = []
    for result in results:
        first = max(archived_to.get(result.partition, 0), result.start_offset)
        if first < result.end_offset:
            # Transaction markers are never archived, and may be all that is left.
            text = f"up to {count_text(result.end_offset - first, 'offset')} to be archived"
            location = result.topic, result.partition, first, result.end_offset - 1
            findings.append(Finding(Level.NOTICE, Kind.ARCHIVE_BEHIND, *location, text))
    return findings


def lost_before(results: Sequence[PartitionResult], read_to: Mapping[int, int]) -> list[Finding]:
    """Records that were deleted from the log before they were archived."""
    findings = []
    for result in results:
        # Where nothing was archived, the archive may have started after retention had deleted records.
        first = read_to.get(result.partition, result.start_offset)
        if first < result.start_offset:
            number = count_text(result.start_offset - first, "record")
            text = f"up to {number} deleted from the log before they were archived (markers included)"
            location = result.topic, result.partition, first, result.start_offset - 1
            findings.append(Finding(Level.FAULT, Kind.LOST, *location, text))
    return findings
