"""Keeping tables in shape: merging files, forgetting snapshots, removing what is not needed."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from runnel.pipelines.tables import Marker, SparkTable, TableError, compaction, ensure_table
from runnel.pipelines.tables.compaction import compact
from runnel.pipelines.tables.durable import local_path
from runnel.pipelines.tables.expiry import sweep
from runnel.pipelines.tables.table import read_files
from tests.pipelines.tables.rows import offsets_in, rows

pytestmark = pytest.mark.timeout(300)  # the first test of a process waits for Spark to start

NOW = {"snapshots_older_than_ms": -1000, "snapshots_min": 1}


@pytest.fixture
def table(spark: SparkSession, catalog: Catalog) -> SparkTable:
    """A table with six small files in two partitions."""
    table = ensure_table(
        catalog,
        "shop.orders",
        rows(spark, [0]).schema,
        partition_by=["day"],
        sort_by=["partition", "offset"],
    )
    for batch in range(3):
        numbers = range(batch * 10, batch * 10 + 10)
        table.append(rows(spark, numbers, partition=batch % 2, days=2), Marker("q", batch))
    return table


def files_of(table: SparkTable) -> set[str]:
    folder = Path(local_path(table.latest().location()) or "", "data")
    return {str(path) for path in folder.rglob("*") if path.is_file()}


def test_small_files_become_one_per_partition_and_stay_sorted(spark, table):
    done = compact(spark, table)
    assert (done.files_before, done.files_after, done.rows) == (6, 2, 30)
    assert offsets_in(table.read(spark)) == list(range(30))
    for file in table.files():
        contents = parquet.read_table(local_path(file.file_path)).to_pydict()
        keys = list(zip(contents["partition"], contents["offset"], strict=True))
        assert keys == sorted(keys)
        assert len(set(contents["day"])) == 1
    assert compact(spark, table).files_before == 0
    # The markers of batches are still there.
    assert not table.append(rows(spark, [0]), Marker("q", 2)).is_new


def test_files_are_packed_up_to_the_target(table):
    files = table.files()
    size_bytes = max(file.file_size_in_bytes for file in files)
    schema = table.latest().schema()
    bins = [
        group for groups in compaction.plan(files, schema, ["offset"], size_bytes * 2) for group in groups
    ]
    assert [len(group) for group in bins] == [2, 2]
    assert list(compaction.plan(files, schema, [], size_bytes)) == []


def test_rows_that_came_meanwhile_survive_a_compaction(spark, table, monkeypatch):
    commit_table = SqlCatalog.commit_table

    def commit_after_another(self, *arguments):
        monkeypatch.setattr(SqlCatalog, "commit_table", commit_table)
        table.append(rows(spark, [100]), Marker("q", 3))
        return commit_table(self, *arguments)

    monkeypatch.setattr(SqlCatalog, "commit_table", commit_after_another)
    compact(spark, table)
    assert offsets_in(table.read(spark)) == [*range(30), 100]


def test_a_compaction_of_files_that_are_gone_changes_nothing(spark, table, monkeypatch):
    rewrite = compaction._rewrite

    def rewrite_after_another(*arguments):
        monkeypatch.setattr(compaction, "_rewrite", rewrite)
        staged = rewrite(*arguments)
        table.replace(rows(spark, [7]), Marker("q", 3))
        return staged

    monkeypatch.setattr(compaction, "_rewrite", rewrite_after_another)
    compact(spark, table)
    assert offsets_in(table.read(spark)) == [7]


def test_a_compaction_that_dies_before_its_snapshot_leaves_the_table_as_it_was(spark, table, monkeypatch):
    before = files_of(table)

    def die(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(compaction, "commit", die)
    with pytest.raises(KeyboardInterrupt):
        compact(spark, table)
    monkeypatch.undo()
    assert offsets_in(table.read(spark)) == list(range(30))
    # Its files go once they are old enough, and not while it might still be at work.
    assert sweep(table).files == 0
    assert files_of(table) > before
    sweep(table, orphans_older_than_ms=-1000)
    assert files_of(table) == before
    assert compact(spark, table).files_after == 2


def test_a_compaction_that_would_lose_rows_is_refused(spark, table, monkeypatch):
    monkeypatch.setattr(compaction, "read_files", lambda *arguments: read_files(*arguments).limit(4))
    with pytest.raises(TableError, match="15 rows, and 4 came out"):
        compact(spark, table)
    assert offsets_in(table.read(spark)) == list(range(30))


def test_old_snapshots_go_with_the_files_that_only_they_need(spark, table):
    compact(spark, table)
    swept = sweep(table, **NOW)
    assert swept.snapshots == 4
    assert swept.files > 6
    assert offsets_in(table.read(spark)) == list(range(30))
    rest = {path for path in files_of(table) if path.endswith(".parquet")}
    assert rest == {local_path(file.file_path) for file in table.files()}
    assert not table.append(rows(spark, [0]), Marker("q", 2)).is_new


def test_where_there_are_many_snapshots_they_go_earlier(spark, table):
    assert sweep(table, snapshots_min=1, snapshots_max=2).snapshots == 0
    assert sweep(table, snapshots_min=1, snapshots_max=2, grace_ms=-1000).snapshots == 1
    assert len(table.latest().snapshots()) == 2
    assert offsets_in(table.read(spark)) == list(range(30))


def test_young_snapshots_and_young_strays_stay(spark, table):
    table.stage(rows(spark, [99]))
    before = files_of(table)
    swept = sweep(table)
    assert (swept.snapshots, swept.files) == (0, 0)
    assert files_of(table) == before


def test_strays_of_dead_attempts_go_when_they_are_old(spark, table):
    staged = table.stage(rows(spark, [99]))
    for path in staged.paths:
        os.utime(local_path(path) or path, (0, 0))
    assert sweep(table).files == len(staged.paths)
    assert offsets_in(table.read(spark)) == list(range(30))


def test_many_commits_leave_few_manifests_and_metadata_files(spark, table):
    first = table.stage(rows(spark, [1000]))
    for number in range(25):
        copy = first.paths[0].replace("part-", f"part-{number}-")
        shutil.copy(local_path(first.paths[0]) or "", local_path(copy) or "")
        table.commit(replace(first, attempt=str(number), paths=[copy]), Marker("q", 10 + number))
    latest = table.latest()
    assert len(latest.current_snapshot().manifests(latest.io)) < 25
    metadata = Path(local_path(latest.location()) or "", "metadata")
    assert len(list(metadata.glob("*.metadata.json"))) <= 21
    sweep(table, **NOW, orphans_older_than_ms=-1000)
    assert len(offsets_in(table.read(spark))) == 55
