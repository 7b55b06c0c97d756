"""Tables: each batch exactly once, with failures and concurrent writers."""

import threading
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from sqlalchemy.exc import OperationalError

from runnel.pipelines.locations import check_location
from runnel.pipelines.tables import (
    BatchMarker,
    NoSuchTable,
    SchemaChanged,
    SparkTable,
    TableError,
    ensure_table,
    open_catalog,
)
from runnel.pipelines.tables.durable import local_path
from tests.pipelines.tables.rows import DAY, offsets_in, rows

pytestmark = pytest.mark.timeout(300)  # the first test of a process waits for Spark to start


@pytest.fixture
def table(spark: SparkSession, catalog: Catalog) -> SparkTable:
    return ensure_table(
        catalog,
        "shop.orders",
        rows(spark, [0]).schema,
        partition_by=["day"],
        sort_by=["partition", "offset"],
    )


def staged_files(table: SparkTable) -> list[Path]:
    return sorted(Path(local_path(table.latest().location()) or "", "data").rglob("part-*.parquet"))


def test_a_batch_is_one_snapshot_with_its_marker(spark, table):
    written = table.append(rows(spark, range(20), days=2, tasks=2), BatchMarker("q", 0), {"color": "red"})
    assert (written.is_new, written.rows) == (True, 20)
    assert len(table.latest().snapshots()) == 1
    assert table.properties()["runnel.batch.q"] == "0"
    assert table.properties()["color"] == "red"
    assert offsets_in(table.read(spark)) == list(range(20))


def test_filters_by_partition_find_their_files_and_rows_stay_sorted(spark, table):
    table.append(rows(spark, [5, 3, 1, 4, 2, 0, 9, 7], days=2))
    files = table.files(f"day = '{DAY}'")
    assert 0 < len(files) < len(table.files())
    contents = parquet.read_table(local_path(files[0].file_path)).to_pydict()
    assert contents["offset"] == [0, 2, 4]
    assert set(contents["day"]) == {DAY}
    assert table.latest().scan(row_filter=f"day = '{DAY}'").to_arrow().num_rows == 3


def test_a_replayed_batch_adds_nothing_and_leaves_no_files(spark, table):
    table.append(rows(spark, range(5)), BatchMarker("q", 7))
    files = staged_files(table)
    assert not table.append(rows(spark, range(5)), BatchMarker("q", 7)).is_new
    # A replay that had staged its files before it found out.
    staged = table.stage(rows(spark, range(5)))
    assert len(staged_files(table)) > len(files)
    assert not table.commit(staged, BatchMarker("q", 7)).is_new
    assert staged_files(table) == files
    assert offsets_in(table.read(spark)) == list(range(5))


def test_batches_of_another_query_are_not_taken_for_replays(spark, table):
    table.append(rows(spark, [0]), BatchMarker("q", 0))
    assert table.append(rows(spark, [1]), BatchMarker("other", 0)).is_new


def test_a_batch_that_died_before_its_snapshot_is_written_by_the_replay(spark, table):
    table.stage(rows(spark, range(5)))  # and then the driver was gone
    assert table.append(rows(spark, range(5)), BatchMarker("q", 0)).is_new
    assert offsets_in(table.read(spark)) == list(range(5))


def test_a_stale_writer_that_checked_before_the_other_committed_adds_nothing(spark, table, monkeypatch):
    stale = table.stage(rows(spark, range(5)))
    commit_table = SqlCatalog.commit_table
    others = iter([lambda: table.append(rows(spark, range(5)), BatchMarker("q", 0))])

    def commit_after_the_other(self, *arguments):
        monkeypatch.setattr(SqlCatalog, "commit_table", commit_table)
        next(others)()
        return commit_table(self, *arguments)

    monkeypatch.setattr(SqlCatalog, "commit_table", commit_after_the_other)
    assert not table.commit(stale, BatchMarker("q", 0)).is_new
    assert offsets_in(table.read(spark)) == list(range(5))


def test_a_commit_whose_answer_was_lost_is_found_and_its_files_stay(spark, table, monkeypatch):
    commit_table = SqlCatalog.commit_table

    def commit_and_lose_the_answer(self, *arguments):
        monkeypatch.setattr(SqlCatalog, "commit_table", commit_table)
        commit_table(self, *arguments)
        raise OperationalError("UPDATE", {}, Exception("disk I/O error"))

    monkeypatch.setattr(SqlCatalog, "commit_table", commit_and_lose_the_answer)
    assert table.append(rows(spark, range(5)), BatchMarker("q", 0)).is_new
    assert offsets_in(table.read(spark)) == list(range(5))
    assert len(table.latest().snapshots()) == 1


def test_writers_at_the_same_time_all_get_in(spark, table, tmp_path):
    staged = [table.stage(rows(spark, [number])) for number in range(4)]

    def write(number: int) -> None:
        with open_catalog(str(tmp_path / "ware house")) as own:
            SparkTable(own, "shop.orders").commit(staged[number], BatchMarker(f"q{number}", 0))

    threads = [threading.Thread(target=write, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert offsets_in(table.read(spark)) == [0, 1, 2, 3]
    assert [table.properties()[f"runnel.batch.q{number}"] for number in range(4)] == ["0"] * 4


def test_properties_that_another_writer_moved_stop_the_commit(spark, table):
    table.append(rows(spark, [0]), properties={"place": "1"})
    staged = table.stage(rows(spark, [1]))
    with pytest.raises(TableError, match=r"changed place .* from None to 1"):
        table.commit(staged, expected={"place": None})
    assert table.commit(staged, expected={"place": "1"}).is_new


def test_an_empty_batch_moves_the_marker_and_its_properties(spark, table):
    assert table.append(rows(spark, [0]).limit(0), BatchMarker("q", 3), {"place": "9"}).rows == 0
    assert table.properties()["runnel.batch.q"] == "3"
    assert offsets_in(table.read(spark)) == []


def test_new_columns_and_wider_types_change_the_table_in_the_same_snapshot(spark, table):
    table.append(rows(spark, [0]))
    wider = rows(spark, [1]).withColumn("partition", F.lit(2**40)).withColumn("note", F.lit("new"))
    table.append(wider, BatchMarker("q", 0))
    table.append(rows(spark, [2]).drop("value"), BatchMarker("q", 1))
    found = {row["offset"]: row for row in table.read(spark).collect()}
    assert [found[offset]["note"] for offset in range(3)] == [None, "new", None]
    assert [found[offset]["value"] for offset in range(3)] == ["v0", "v1", None]
    assert [found[offset]["partition"] for offset in range(3)] == [0, 2**40, 0]
    assert table.latest().scan().to_arrow().num_rows == 3


def test_structs_grow_fields_inside_of_lists(spark, catalog):
    old = spark.sql("SELECT array(named_struct('a', 1)) AS items")
    table = ensure_table(catalog, "shop.lists", old.schema)
    table.append(old)
    table.append(spark.sql("SELECT array(named_struct('b', 'x', 'a', 2L)) AS items"))
    found = sorted(row["items"][0].asDict()["a"] for row in table.read(spark).collect())
    assert found == [1, 2]


def test_rows_of_another_type_are_refused_before_anything_is_written(spark, table):
    with pytest.raises(SchemaChanged, match="column offset of the table is bigint, the rows have string"):
        table.append(rows(spark, [0]).withColumn("offset", F.lit("zero")))
    assert staged_files(table) == []


def test_names_that_differ_in_case_alone_and_columns_without_type_are_refused(spark, table):
    with pytest.raises(SchemaChanged, match="differ in case"):
        table.append(rows(spark, [0]).withColumnRenamed("value", "VALUE"))
    with pytest.raises(TableError, match="has no type"):
        table.append(rows(spark, [0]).withColumn("nothing", F.lit(None)))
    assert table.append(rows(spark, [0]).withColumn("value", F.lit(None))).rows == 1


def test_replacing_leaves_the_new_rows_alone(spark, table):
    table.append(rows(spark, range(5)), BatchMarker("q", 0))
    assert table.replace(rows(spark, [8, 9]), BatchMarker("q", 1)).rows == 2
    assert not table.replace(rows(spark, [8, 9]), BatchMarker("q", 1)).is_new
    assert offsets_in(table.read(spark)) == [8, 9]


def test_rows_are_removed_by_their_partition(spark, table):
    table.append(rows(spark, range(10), days=2))
    assert table.remove("day < '2026-05-02'") == 5
    assert table.remove("day < '2026-05-02'") == 0
    assert offsets_in(table.read(spark)) == [1, 3, 5, 7, 9]


def test_partition_values_that_are_null_are_kept(spark, table):
    table.append(rows(spark, [0, 1]).withColumn("day", F.expr("if(offset = 0, day, null)")))
    assert offsets_in(table.read(spark)) == [0, 1]
    assert table.latest().scan(row_filter="day is null").to_arrow().num_rows == 1


def test_tables_that_cannot_be(spark, catalog):
    with pytest.raises(NoSuchTable):
        SparkTable(catalog, "shop.nothing")
    with pytest.raises(TableError, match="is not a table name"):
        ensure_table(catalog, "orders", rows(spark, [0]).schema)
    with pytest.raises(TableError, match="to be partitioned or sorted by"):
        ensure_table(catalog, "shop.orders", rows(spark, [0]).schema, partition_by=["month"])
    with pytest.raises(TableError, match="requires another catalog"):
        open_catalog("s3://bucket/warehouse")


def test_a_table_that_others_write_to_without_end_says_so(spark, table, monkeypatch):
    def refuse(self, *arguments):
        raise CommitFailedException("updated by another process")

    monkeypatch.setattr(SqlCatalog, "commit_table", refuse)
    monkeypatch.setattr("runnel.pipelines.tables.commit.COMMITS_MAX", 2)
    with pytest.raises(TableError, match="too many concurrent writers"):
        table.append(rows(spark, [0]))


def test_an_address_that_spark_cannot_reach_is_reported(spark, tmp_path):
    for location in (str(tmp_path), f"file://{tmp_path}"):
        check_location(spark, location)
    with pytest.raises(TableError, match="Spark has no file system for s3://bucket/warehouse: object stores"):
        check_location(spark, "s3://bucket/warehouse")
