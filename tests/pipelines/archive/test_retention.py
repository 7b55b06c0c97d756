"""Retention of an archive: what it deletes, keeps and reports."""

import datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql.types import DateType, LongType, StructType

from runnel.pipelines.archive.layout import kept_from
from runnel.pipelines.archive.retention import remove_before
from runnel.pipelines.tables import SparkTable, ensure_table, open_catalog

COLUMNS = StructType().add("offset", LongType()).add("day", DateType())
MAY = [datetime.date(2026, 5, number) for number in range(1, 32)]
NO_TIMESTAMP = datetime.date(1969, 12, 31)


@pytest.fixture
def table(tmp_path: Path):
    with open_catalog(str(tmp_path / "warehouse")) as catalog:
        table = ensure_table(catalog, "archive.orders", COLUMNS, partition_by=["day"])
        days = [NO_TIMESTAMP, *MAY[:5]]
        table.latest().append(pa.table({"offset": pa.array(range(6), pa.int64()), "day": days}))
        yield table


def days_of(table: SparkTable) -> list[datetime.date]:
    return sorted(table.latest().scan().to_arrow()["day"].to_pylist())


def test_records_without_a_timestamp_are_not_taken_for_old_ones(table):
    assert remove_before(table, MAY[2]) == 2
    assert days_of(table) == [NO_TIMESTAMP, *MAY[2:5]]
    assert kept_from(table.properties()) == MAY[2]
    assert remove_before(table, MAY[2]) == 0


def test_another_run_that_removed_more_is_not_forgotten(table, monkeypatch):
    commit_table = SqlCatalog.commit_table

    def commit_after_another(self, *arguments):
        monkeypatch.setattr(SqlCatalog, "commit_table", commit_table)
        remove_before(table, MAY[3])
        late = pa.table({"offset": pa.array([9], pa.int64()), "day": [MAY[0]]})
        table.latest().append(late)
        return commit_table(self, *arguments)

    monkeypatch.setattr(SqlCatalog, "commit_table", commit_after_another)
    assert remove_before(table, MAY[1]) == 1
    assert days_of(table) == [NO_TIMESTAMP, *MAY[3:5]]
    assert kept_from(table.properties()) == MAY[3]
