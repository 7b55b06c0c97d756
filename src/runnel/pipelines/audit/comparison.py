"""Compares the records of a log with those of its archive.

Both are hashed per bucket of offsets; records are compared one by one only where the hashes differ. A
compacted log has gaps everywhere: there, each remaining record is looked up in the archive.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from runnel.pipelines.audit.findings import Finding, Kind, Level, count_text
from runnel.pipelines.audit.ranges import runs

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BUCKET_OFFSETS = 4096
BUCKETS_REPORTED_MAX = 256
"""Differing buckets that are compared in detail; further ones are counted."""
_TEXTS = {
    Kind.ARCHIVE_MISSING: "{} of the log not found in the archive",
    Kind.ARCHIVE_EXTRA: "{} of the archive not found in the log",
    Kind.ARCHIVE_DOUBLED: "{} duplicated in the archive",
    Kind.ARCHIVE_DIFFERS: "{} with different contents in the archive",
}


class Comparison:
    """Compares the records of one topic."""

    def __init__(
        self,
        topic: str,
        logged: "DataFrame",
        kept: "DataFrame",
        *,
        starts: Callable[[], Mapping[int, int]],
        is_compacted: bool = False,
    ) -> None:
        """`starts` returns the current log start offsets: retention continues during the audit."""
        self._topic = topic
        self._logged = _hashed(logged)
        self._kept = _hashed(kept)
        self._starts = starts
        self._is_compacted = is_compacted

    def findings(self) -> list[Finding]:
        findings = self._compacted_away() if self._is_compacted else []
        differing = self._differing_buckets()
        if not differing:
            return findings
        reported = differing[:BUCKETS_REPORTED_MAX]
        findings += self._compare_buckets(reported)
        if len(differing) > len(reported):
            more = count_text(len(differing) - len(reported), "range")
            text = f"{more} of {BUCKET_OFFSETS} offsets differ as well"
            findings.append(Finding(Level.FAULT, Kind.ARCHIVE_DIFFERS, self._topic, -1, -1, -1, text))
        return findings

    def _compacted_away(self) -> list[Finding]:
        """Archived records that compaction removed from the log."""
        only_kept = self._kept.join(
            self._logged.select("partition", "offset"), ["partition", "offset"], "left_anti"
        )
        found = only_kept.groupBy("partition").agg(
            F.count_distinct("offset").alias("number"),
            F.min("offset").alias("first"),
            F.max("offset").alias("last"),
        )
        return [
            Finding(
                Level.EXPLAINED,
                Kind.ARCHIVE_EXTRA,
                self._topic,
                row["partition"],
                row["first"],
                row["last"],
                f"{count_text(row['number'], 'record')} of the archive compacted away in the log",
            )
            for row in sorted(found.collect())
        ]

    def _differing_buckets(self) -> list[tuple[int, int]]:
        if self._is_compacted:
            both = _joined(_by_offset(self._logged), _by_offset(self._kept), "offset", "left")
            both = both.withColumn("bucket", _bucket())
        else:
            both = _joined(_by_bucket(self._logged), _by_bucket(self._kept), "bucket", "full_outer")
        is_same = F.col("count").eqNullSafe(F.col("kept_count")) & F.col("sum").eqNullSafe(F.col("kept_sum"))
        rows = both.where(~is_same).select("partition", "bucket").distinct().collect()
        starts = self._starts()
        return sorted(
            (row["partition"], row["bucket"])
            for row in rows
            # Retention may have deleted records from the log meanwhile.
            if (row["bucket"] + 1) * BUCKET_OFFSETS > starts.get(row["partition"], 0)
        )

    def _compare_buckets(self, buckets: list[tuple[int, int]]) -> list[Finding]:
        session = self._logged.sparkSession
        wanted = F.broadcast(session.createDataFrame(buckets, "partition int, bucket bigint"))
        logged = _by_offset(self._logged.join(wanted, ["partition", "bucket"]))
        kept = _by_offset(self._kept.join(wanted, ["partition", "bucket"]))
        both = _joined(logged, kept, "offset", "left" if self._is_compacted else "full_outer")
        found = {
            kind: [
                (row["partition"], row["offset"])
                for row in both.where(condition).select("partition", "offset").collect()
            ]
            for kind, condition in _conditions().items()
        }
        starts = self._starts()
        found[Kind.ARCHIVE_EXTRA] = [
            (partition, offset)
            for partition, offset in found[Kind.ARCHIVE_EXTRA]
            if offset >= starts.get(partition, 0)
        ]
        return [
            finding
            for kind, offsets_found in found.items()
            for finding in self._findings_of(kind, offsets_found)
        ]

    def _findings_of(self, kind: Kind, offsets_found: Iterable[tuple[int, int]]) -> list[Finding]:
        by_partition: dict[int, list[int]] = {}
        for partition, offset in offsets_found:
            by_partition.setdefault(partition, []).append(offset)
        return [
            Finding(
                Level.FAULT,
                kind,
                self._topic,
                partition,
                first,
                last,
                _TEXTS[kind].format(count_text(last - first + 1, "record")),
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


def _joined(logged: "DataFrame", kept: "DataFrame", column: str, how: str) -> "DataFrame":
    renamed = kept.withColumnsRenamed({"count": "kept_count", "sum": "kept_sum"})
    return logged.join(renamed, ["partition", column], how)


def _hashed(frame: "DataFrame") -> "DataFrame":
    content = F.xxhash64("offset", "timestamp", "key", "value", "headers")
    return frame.select("partition", "offset", _bucket().alias("bucket"), content.alias("content"))


def _bucket() -> "Column":
    return F.expr(f"offset div {BUCKET_OFFSETS}")


def _by_bucket(frame: "DataFrame") -> "DataFrame":
    return frame.groupBy("partition", "bucket").agg(*_sums())


def _by_offset(frame: "DataFrame") -> "DataFrame":
    return frame.groupBy("partition", "offset").agg(*_sums())


def _sums() -> "list[Column]":
    # XOR cannot overflow and does not depend on order. Duplicates show in the count.
    return [F.count("*").alias("count"), F.bit_xor("content").alias("sum")]
