"""The comparison of synthetic log and archive rows."""

import datetime

import pytest

from runnel.pipelines.audit import comparison
from runnel.pipelines.audit.archive import is_retained
from runnel.pipelines.audit.comparison import Comparison
from runnel.pipelines.audit.findings import Kind, Level

SCHEMA = (
    "partition int, offset bigint, timestamp timestamp, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>"
)
MOMENT = datetime.datetime(2026, 5, 1, tzinfo=datetime.UTC)


@pytest.fixture
def compared(spark, monkeypatch):
    """Compares offsets, each with a value, with small buckets; returns the findings."""
    monkeypatch.setattr(comparison, "BUCKET_OFFSETS", 10)
    monkeypatch.setattr(comparison, "BUCKETS_REPORTED_MAX", 2)

    def frame(values):
        rows = [(0, offset, MOMENT, b"k", value, None) for offset, value in values]
        return spark.createDataFrame(rows, SCHEMA).coalesce(1)

    def compare(logged, kept, *, start=0, is_compacted=False):
        found = Comparison(
            "orders", frame(logged), frame(kept), starts=lambda: {0: start}, is_compacted=is_compacted
        ).findings()
        return [(entry.level, entry.kind, entry.first_offset, entry.last_offset) for entry in found]

    return compare


def values(*offsets):
    return [(offset, b"value %d" % offset) for offset in offsets]


def test_records_compacted_in_the_log_may_be_in_the_archive(compared):
    kept = values(*range(100))
    logged = values(*range(0, 100, 7))
    found = compared(logged, kept, is_compacted=True)
    assert found == [(Level.EXPLAINED, Kind.ARCHIVE_EXTRA, 1, 99)]
    # The remaining records are compared.
    found = compared([*logged, (50, b"other"), (101, b"new")], kept, is_compacted=True)
    assert found == [
        (Level.EXPLAINED, Kind.ARCHIVE_EXTRA, 1, 99),
        (Level.FAULT, Kind.ARCHIVE_MISSING, 101, 101),
        (Level.FAULT, Kind.ARCHIVE_DIFFERS, 50, 50),
    ]


def test_records_deleted_during_the_comparison_are_not_a_fault(compared):
    kept = values(*range(100))
    assert compared(values(*range(75, 100)), kept, start=75) == []
    found = compared(values(*range(75, 100)), kept, start=73)
    assert found == [(Level.FAULT, Kind.ARCHIVE_EXTRA, 73, 74)]


def test_differences_beyond_the_reported_ones_are_counted(compared):
    found = compared(values(*range(100)), values(*range(60)))
    assert found == [
        (Level.FAULT, Kind.ARCHIVE_MISSING, 60, 79),
        (Level.FAULT, Kind.ARCHIVE_DIFFERS, -1, -1),
    ]


def test_records_that_the_archives_retention_keeps_are_required(spark):
    rows = spark.sql(
        "SELECT timestamp_millis(at_ms) AS timestamp, at_ms FROM VALUES (-1), (0), (86400000) t(at_ms)"
    )
    due = rows.where(is_retained(datetime.date(1970, 1, 2))).collect()
    assert sorted(row.at_ms for row in due) == [-1, 86_400_000]
