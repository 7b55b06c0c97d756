"""Changes of tables that need no Spark: properties, removals, and what is noted of a file."""

import datetime

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyspark.sql.types import DateType, LongType, StructType, TimestampType
from sqlalchemy.exc import OperationalError

from runnel.pipelines.tables import CatalogBusy, CommitConflict, SparkTable, ensure_table
from runnel.pipelines.tables.durable import local_path
from runnel.pipelines.tables.table import data_files

COLUMNS = StructType().add("offset", LongType()).add("at", TimestampType()).add("day", DateType())
FAR_MS = 300_000_000_000_000  # the year 11476


@pytest.fixture
def table(catalog) -> SparkTable:
    return ensure_table(catalog, "shop.orders", COLUMNS, partition_by=["day"], sort_by=["offset"])


def locked(self, *arguments):
    raise OperationalError("UPDATE", {}, Exception("database is locked"))


def quicker_other(self, *arguments):
    raise CommitFailedException("updated by another process")


@pytest.mark.parametrize("failure", [locked, quicker_other])
def test_properties_are_set_after_all_when_the_catalog_is_free_again(table, monkeypatch, failure):
    commit_table, failures = SqlCatalog.commit_table, [failure, failure]

    def commit_in_the_end(self, *arguments):
        return (failures.pop() if failures else commit_table)(self, *arguments)

    monkeypatch.setattr(SqlCatalog, "commit_table", commit_in_the_end)
    table.set_properties({"color": "red"})
    assert table.properties()["color"] == "red"


@pytest.mark.parametrize(("failure", "error"), [(locked, CatalogBusy), (quicker_other, CommitConflict)])
def test_properties_that_cannot_be_set_say_why(table, monkeypatch, failure, error):
    monkeypatch.setattr(SqlCatalog, "commit_table", failure)
    monkeypatch.setattr("runnel.pipelines.tables.commit.COMMITS_MAX", 2)
    with pytest.raises(error):
        table.set_properties({"color": "red"})


def test_a_file_with_times_beyond_all_calendars_is_taken(table):
    latest = table.latest()
    path = f"{local_path(latest.location())}/far.parquet"
    rows = pa.table(
        {
            "offset": pa.array([7, 8], pa.int64()),
            "at": pa.array([0, FAR_MS * 1000]).cast(pa.timestamp("us", tz="UTC")),
            "day": [datetime.date.max, datetime.date.max],
        }
    )
    parquet.write_table(rows, path)
    (file,) = data_files(latest, latest.transaction(), [f"file://{path}"])
    offset, at = (latest.schema().find_field(name).field_id for name in ("offset", "at"))
    assert (file.record_count, file.partition[0]) == (2, (datetime.date.max - datetime.date(1970, 1, 1)).days)
    assert offset in file.upper_bounds and at not in file.upper_bounds
    assert file.null_value_counts[at] == 0
