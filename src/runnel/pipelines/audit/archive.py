"""The log beside its archive: is every committed record there, once, and the same?"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from pyiceberg.table import Table
from pyspark.sql import functions as F

from runnel.model.ids import TopicPartition
from runnel.pipelines.archive.layout import (
    NAMESPACE,
    archived_offsets,
    kept_from,
    open_archive,
    read_offsets,
)
from runnel.pipelines.audit.archive_files import ArchiveFiles
from runnel.pipelines.audit.comparison import Comparison
from runnel.pipelines.audit.findings import Finding, Kind, Level, count_text
from runnel.pipelines.audit.judge import PartitionVerdict
from runnel.pipelines.broker import BrokerView
from runnel.pipelines.errors import NoSuchTable
from runnel.pipelines.tables.catalog import open_catalog

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_DAY_MS = 86_400_000
Spans = Mapping[int, tuple[int, int]]
"""By partition, offsets [start, end)."""


@dataclass(frozen=True, slots=True)
class Archive:
    """Where the archive is."""

    warehouse: str
    namespace: str = NAMESPACE


@dataclass(frozen=True, slots=True)
class Archived:
    """What an archive has of one topic."""

    topic: str
    rows: int
    files: int
    findings: list[Finding]


def compare(
    session: "SparkSession",
    bootstrap: str,
    archive: Archive,
    topic: str,
    verdicts: Sequence[PartitionVerdict],
) -> Archived:
    """Compare one topic with its table."""
    with open_catalog(archive.warehouse) as catalog:
        try:
            # One state of the table for all that follows: an archive that runs moves it on.
            table = open_archive(catalog, archive.namespace, topic).latest()
        except NoSuchTable as error:
            missing = Finding(Level.NOTICE, Kind.ARCHIVE_BEHIND, topic, -1, -1, -1, str(error))
            return Archived(topic, 0, 0, [missing])
        files = ArchiveFiles(table, topic)
    log = _Log(bootstrap, topic, verdicts)
    # Asked for after the table was opened: all that it contains was in the log before.
    spans = log.spans()
    archived_to = archived_offsets(table.properties)
    rows, findings = files.read(session, lambda kept: _compared(session, table, kept, log, spans))
    findings += lost_before(verdicts, read_offsets(table.properties)) + behind(verdicts, archived_to)
    return Archived(topic, rows, len(files.present), files.findings + findings)


class _Log:
    """The log of one topic: as it was when it was judged, and as it is now."""

    def __init__(self, bootstrap: str, topic: str, verdicts: Sequence[PartitionVerdict]) -> None:
        self.topic = topic
        self.verdicts = verdicts
        self._bootstrap = bootstrap
        self._partitions = [TopicPartition(topic, verdict.partition) for verdict in verdicts]

    def spans(self) -> Spans:
        """What is there now."""
        with BrokerView(self._bootstrap, client_id="runnel-audit") as broker:
            ends = broker.latest_offsets(self._partitions)
            starts = broker.earliest_offsets(self._partitions)
        return {place.partition: (starts[place], ends[place]) for place in self._partitions}

    def starts(self) -> dict[int, int]:
        """Where it begins now."""
        return {partition: start for partition, (start, _) in self.spans().items()}

    def read(self, session: "SparkSession", ranges: Spans) -> "DataFrame":
        starts = {self.topic: {str(partition): start for partition, (start, _) in ranges.items()}}
        ends = {self.topic: {str(partition): end for partition, (_, end) in ranges.items()}}
        return (
            session.read.format("runnel")
            .option("kafka.bootstrap.servers", self._bootstrap)
            .option("assign", json.dumps({self.topic: sorted(ranges)}))
            .option("startingOffsets", json.dumps(starts))
            .option("endingOffsets", json.dumps(ends))
            # What retention takes meanwhile is found out afterwards, and need not end the audit.
            .option("failOnDataLoss", "false")
            .load()
        )


def _compared(
    session: "SparkSession", table: Table, kept: "DataFrame", log: _Log, spans: Spans
) -> tuple[int, list[Finding]]:
    """How many rows the archive has, and how they differ from the log."""
    findings: list[Finding] = []
    ranges = shared_ranges(log.verdicts, archived_offsets(table.properties), spans)
    if ranges:
        is_wanted = is_due(kept_from(table.properties))
        findings += Comparison(
            log.topic,
            log.read(session, ranges).where(is_wanted),
            _within(kept, ranges).where(is_wanted),
            starts=log.starts,
            is_compacted=any(verdict.is_compacted for verdict in log.verdicts),
        ).findings()
    last = kept.groupBy("partition").agg(F.max("offset").alias("last")).collect()
    findings += beyond(log.topic, {row["partition"]: row["last"] for row in last}, spans)
    return kept.count(), findings


def is_due(oldest: date) -> "Column":
    """What the archive's own retention took need not be there; records without a time it never takes."""
    timestamp_ms = F.unix_millis("timestamp")
    return (timestamp_ms < 0) | (timestamp_ms >= (oldest - date(1970, 1, 1)).days * _DAY_MS)


def shared_ranges(
    verdicts: Sequence[PartitionVerdict], archived_to: Mapping[int, int], spans: Spans
) -> dict[int, tuple[int, int]]:
    """What both should have, by partition: damaged logs are compared up to the damage."""
    ranges = {}
    for verdict in verdicts:
        damage = [
            entry.first_offset for entry in verdict.findings if entry.kind in (Kind.DAMAGED, Kind.UNREADABLE)
        ]
        # Retention may have taken more since the log was judged.
        start = max(verdict.start_offset, spans[verdict.partition][0])
        end = min([verdict.end_offset, archived_to.get(verdict.partition, -1), *damage])
        if end > start:
            ranges[verdict.partition] = start, end
    return ranges


def _within(kept: "DataFrame", ranges: Spans) -> "DataFrame":
    condition = F.lit(False)
    for partition, (start, end) in ranges.items():
        inside = (F.col("offset") >= start) & (F.col("offset") < end)
        condition = condition | ((F.col("partition") == partition) & inside)
    return kept.where(condition)


def beyond(topic: str, last: Mapping[int, int], spans: Spans) -> list[Finding]:
    """Records that the archive has, and that the log should still have: it ends before them."""
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


def behind(verdicts: Sequence[PartitionVerdict], archived_to: Mapping[int, int]) -> list[Finding]:
    """How much is still to be archived; no fault, as the log has it."""
    findings = []
    for verdict in verdicts:
        first = max(archived_to.get(verdict.partition, 0), verdict.start_offset)
        if first < verdict.end_offset:
            # Markers are never archived, so that some of them may be all there is.
            words = f"up to {count_text(verdict.end_offset - first, 'offset')} to be archived"
            place = verdict.topic, verdict.partition, first, verdict.end_offset - 1
            findings.append(Finding(Level.NOTICE, Kind.ARCHIVE_BEHIND, *place, words))
    return findings


def lost_before(verdicts: Sequence[PartitionVerdict], read_to: Mapping[int, int]) -> list[Finding]:
    """What went from the log before the archive had it: it is missing."""
    findings = []
    for verdict in verdicts:
        # Where nothing was ever archived, the archive may have begun when the log had been cut already.
        first = read_to.get(verdict.partition, verdict.start_offset)
        if first < verdict.start_offset:
            number = count_text(verdict.start_offset - first, "record")
            words = f"up to {number} went from the log before they were archived (markers count in)"
            place = verdict.topic, verdict.partition, first, verdict.start_offset - 1
            findings.append(Finding(Level.FAULT, Kind.LOST, *place, words))
    return findings
