"""The log beside its archive: is every committed record there, once, and the same?

Both sides are summed up in buckets of offsets; only where the sums differ are records compared one by one.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.types import PrimitiveType
from pyspark.sql import functions as F

from runnel.pipelines.archive.layout import NAMESPACE, archived_offsets, kept_from, open_archive
from runnel.pipelines.audit.findings import Finding, Kind, Level, count_text
from runnel.pipelines.audit.judge import PartitionVerdict
from runnel.pipelines.audit.ranges import runs
from runnel.pipelines.errors import NoSuchTable
from runnel.pipelines.tables.catalog import open_catalog
from runnel.pipelines.tables.table import read_files

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_DAY_MS = 86_400_000
BUCKET_OFFSETS = 4096
BUCKETS_TOLD = 256
"""So many differing buckets are looked into; that there are more is said."""


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
            table = open_archive(catalog, archive.namespace, topic)
        except NoSuchTable as error:
            missing = Finding(Level.NOTICE, Kind.ARCHIVE_BEHIND, topic, -1, -1, -1, str(error))
            return Archived(topic, 0, 0, [missing])
        files, findings = _present(table.latest(), table.files(), topic)
        kept = read_files(session, table.columns(), files)
        archived_to = archived_offsets(table.properties())
        oldest = kept_from(table.properties())
    ranges = _ranges(verdicts, archived_to)
    if ranges:
        # What the archive's own retention took need not be there.
        is_due = F.unix_millis("timestamp") >= (oldest - date(1970, 1, 1)).days * _DAY_MS
        logged = _logged(session, bootstrap, topic, ranges).where(is_due)
        findings += _Comparison(topic, logged, _within(kept, ranges).where(is_due)).findings()
    findings += _beyond(topic, kept, verdicts) + _behind(verdicts, archived_to)
    return Archived(topic, kept.count(), len(files), findings)


def _present(table: Table, files: Sequence[DataFile], topic: str) -> tuple[list[DataFile], list[Finding]]:
    """The files that are there, and what is wrong with the others."""
    present, findings = [], []
    for file in files:
        source = table.io.new_input(file.file_path)
        if source.exists() and len(source) == file.file_size_in_bytes:
            present.append(file)
            continue
        state = "has another size than when it was written" if source.exists() else "is not there"
        partition, first, last = _bounds(table, file)
        words = f"{file.file_path} {state}: {count_text(file.record_count, 'record')} are in it"
        findings.append(Finding(Level.FAULT, Kind.ARCHIVE_FILE, topic, partition, first, last, words))
    return present, findings


def _bounds(table: Table, file: DataFile) -> tuple[int, int, int]:
    """(partition, first offset, last offset) of a file by its statistics, -1 where it holds several."""

    def bound(column: str, bounds: dict[int, bytes] | None) -> int:
        field = table.schema().find_field(column)
        raw, kind = (bounds or {}).get(field.field_id), field.field_type
        return int(from_bytes(kind, raw)) if raw is not None and isinstance(kind, PrimitiveType) else -1

    low, high = bound("partition", file.lower_bounds), bound("partition", file.upper_bounds)
    if low != high:
        return -1, -1, -1
    return low, bound("offset", file.lower_bounds), bound("offset", file.upper_bounds)


def _ranges(verdicts: Sequence[PartitionVerdict], archived_to: dict[int, int]) -> dict[int, tuple[int, int]]:
    """What both should have, by partition: damaged logs are compared up to the damage."""
    ranges = {}
    for verdict in verdicts:
        damage = [
            entry.first_offset for entry in verdict.findings if entry.kind in (Kind.DAMAGED, Kind.UNREADABLE)
        ]
        end = min([verdict.end_offset, archived_to.get(verdict.partition, -1), *damage])
        if end > verdict.start_offset:
            ranges[verdict.partition] = verdict.start_offset, end
    return ranges


def _logged(
    session: "SparkSession", bootstrap: str, topic: str, ranges: dict[int, tuple[int, int]]
) -> "DataFrame":
    starts = {topic: {str(partition): start for partition, (start, _) in ranges.items()}}
    ends = {topic: {str(partition): end for partition, (_, end) in ranges.items()}}
    wanted = {topic: sorted(ranges)}
    return (
        session.read.format("runnel")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("assign", json.dumps(wanted))
        .option("startingOffsets", json.dumps(starts))
        .option("endingOffsets", json.dumps(ends))
        .load()
    )


def _within(kept: "DataFrame", ranges: dict[int, tuple[int, int]]) -> "DataFrame":
    condition = F.lit(False)
    for partition, (start, end) in ranges.items():
        inside = (F.col("offset") >= start) & (F.col("offset") < end)
        condition = condition | ((F.col("partition") == partition) & inside)
    return kept.where(condition)


class _Comparison:
    """Two tables of the same records, side by side."""

    def __init__(self, topic: str, logged: "DataFrame", kept: "DataFrame") -> None:
        self._topic = topic
        self._logged = _summed_up(logged)
        self._kept = _summed_up(kept)

    def findings(self) -> list[Finding]:
        differing = self._differing_buckets()
        if not differing:
            return []
        told = differing[:BUCKETS_TOLD]
        findings = self._look_into(told)
        if len(differing) > len(told):
            more = count_text(len(differing) - len(told), "stretch")
            words = f"{more} of {BUCKET_OFFSETS} offsets differ as well"
            findings.append(Finding(Level.FAULT, Kind.ARCHIVE_DIFFERS, self._topic, -1, -1, -1, words))
        return findings

    def _differing_buckets(self) -> list[tuple[int, int]]:
        both = _by_bucket(self._logged).join(
            _by_bucket(self._kept).withColumnsRenamed({"count": "kept_count", "sum": "kept_sum"}),
            ["partition", "bucket"],
            "full_outer",
        )
        is_same = F.col("count").eqNullSafe(F.col("kept_count")) & F.col("sum").eqNullSafe(F.col("kept_sum"))
        rows = both.where(~is_same).select("partition", "bucket").orderBy("partition", "bucket").collect()
        return [(row["partition"], row["bucket"]) for row in rows]

    def _look_into(self, buckets: list[tuple[int, int]]) -> list[Finding]:
        session = self._logged.sparkSession
        wanted = F.broadcast(session.createDataFrame(buckets, "partition int, bucket bigint"))
        logged = _by_offset(self._logged.join(wanted, ["partition", "bucket"]))
        kept = _by_offset(self._kept.join(wanted, ["partition", "bucket"]))
        both = logged.join(
            kept.withColumnsRenamed({"count": "kept_count", "sum": "kept_sum"}),
            ["partition", "offset"],
            "full_outer",
        )
        found = {kind: both.where(condition) for kind, condition in _conditions().items()}
        return [
            finding
            for kind, rows in found.items()
            for finding in self._told(kind, rows.select("partition", "offset").collect())
        ]

    def _told(self, kind: Kind, rows: "Sequence[tuple[int, int]]") -> list[Finding]:
        by_partition: dict[int, list[int]] = {}
        for partition, offset in rows:
            by_partition.setdefault(partition, []).append(offset)
        return [
            Finding(
                Level.FAULT,
                kind,
                self._topic,
                partition,
                first,
                last,
                _WORDS[kind].format(count_text(last - first + 1, "record")),
            )
            for partition, offsets in sorted(by_partition.items())
            for first, last in runs(offsets)
        ]


def _conditions() -> "dict[Kind, Column]":
    logged, kept = F.col("count"), F.col("kept_count")
    return {
        Kind.ARCHIVE_MISSING: kept.isNull(),
        Kind.ARCHIVE_EXTRA: logged.isNull(),
        Kind.ARCHIVE_DOUBLED: kept > F.coalesce(logged, F.lit(1)),
        Kind.ARCHIVE_DIFFERS: (kept == logged) & (F.col("sum") != F.col("kept_sum")),
    }


_WORDS = {
    Kind.ARCHIVE_MISSING: "{} of the log not found in the archive",
    Kind.ARCHIVE_EXTRA: "{} of the archive not found in the log",
    Kind.ARCHIVE_DOUBLED: "{} more than once in the archive",
    Kind.ARCHIVE_DIFFERS: "{} with other contents in the archive",
}


def _summed_up(frame: "DataFrame") -> "DataFrame":
    content = F.xxhash64("offset", "timestamp", "key", "value", "headers")
    return frame.select(
        "partition",
        "offset",
        F.expr(f"offset div {BUCKET_OFFSETS}").alias("bucket"),
        content.alias("content"),
    )


def _by_bucket(frame: "DataFrame") -> "DataFrame":
    return frame.groupBy("partition", "bucket").agg(*_sums())


def _by_offset(frame: "DataFrame") -> "DataFrame":
    return frame.groupBy("partition", "offset").agg(*_sums())


def _sums() -> "list[Column]":
    # Exclusive or cannot overflow, and does not mind the order. Of a doubled record the count tells.
    return [F.count("*").alias("count"), F.bit_xor("content").alias("sum")]


def _beyond(topic: str, kept: "DataFrame", verdicts: Sequence[PartitionVerdict]) -> list[Finding]:
    """Records that the archive has, and that the log should still have: it ends before them."""
    ends = {verdict.partition: verdict.end_offset for verdict in verdicts}
    highest = kept.groupBy("partition").agg(F.max("offset").alias("last")).collect()
    findings = []
    for row in highest:
        end = ends.get(row["partition"])
        if end is not None and row["last"] >= end:
            words = f"the archive goes on to offset {row['last']}, the log ends before"
            findings.append(
                Finding(Level.FAULT, Kind.ARCHIVE_EXTRA, topic, row["partition"], end, row["last"], words)
            )
    return findings


def _behind(verdicts: Sequence[PartitionVerdict], archived_to: dict[int, int]) -> list[Finding]:
    """How much is still to be archived; no fault, as the log has it."""
    findings = []
    for verdict in verdicts:
        first = max(archived_to.get(verdict.partition, 0), verdict.start_offset)
        if first < verdict.end_offset:
            # Markers are never archived, so that some of them may be all there is.
            words = f"up to {count_text(verdict.end_offset - first, 'offset')} to be archived"
            findings.append(
                Finding(
                    Level.NOTICE,
                    Kind.ARCHIVE_BEHIND,
                    verdict.topic,
                    verdict.partition,
                    first,
                    verdict.end_offset - 1,
                    words,
                )
            )
    return findings
