"""Upkeep of tables: compaction, snapshot expiry, removal of orphans."""

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as parquet
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from runnel.pipelines.tables import BatchMarker, SparkTable, TableError, compaction, ensure_table, expiry
from runnel.pipelines.tables.compaction import compact
from runnel.pipelines.tables.durable import local_path
from runnel.pipelines.tables.expiry import sweep
from runnel.pipelines.tables.table import read_files
from runnel.pipelines.tables.upkeep import maintain
from runnel.pipelines.upkeep import NO_UPKEEP, UpkeepPolicy
from tests.pipelines.tables.rows import offsets_in, rows

pytestmark = pytest.mark.timeout(300)  # the first test of a process waits for Spark to start

MAX_AGE = "history.expire.max-snapshot-age-ms"
MIN_COUNT = "history.expire.min-snapshots-to-keep"
HOUR_MS = 60 * 60 * 1000
EXPIRE_ALL = {MAX_AGE: "0", MIN_COUNT: "1"}


def later(monkeypatch: pytest.MonkeyPatch, hours: float) -> None:
    """Look after tables as if that much time had passed."""
    real, passed_ns = time.time_ns, int(hours * HOUR_MS) * 1_000_000
    monkeypatch.setattr(expiry, "time", SimpleNamespace(time_ns=lambda: real() + passed_ns))


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
        table.append(rows(spark, numbers, partition=batch % 2, days=2), BatchMarker("q", batch))
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
    assert not table.append(rows(spark, [0]), BatchMarker("q", 2)).is_new


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
        table.append(rows(spark, [100]), BatchMarker("q", 3))
        return commit_table(self, *arguments)

    monkeypatch.setattr(SqlCatalog, "commit_table", commit_after_another)
    compact(spark, table)
    assert offsets_in(table.read(spark)) == [*range(30), 100]


def test_a_compaction_of_deleted_files_changes_nothing(spark, table, monkeypatch):
    rewrite = compaction._rewrite

    def rewrite_after_another(*arguments):
        monkeypatch.setattr(compaction, "_rewrite", rewrite)
        staged = rewrite(*arguments)
        table.replace(rows(spark, [7]), BatchMarker("q", 3))
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
    later(monkeypatch, 73)
    sweep(table, is_expiring=False)
    assert files_of(table) == before
    assert compact(spark, table).files_after == 2


def test_a_compaction_that_would_lose_rows_is_refused(spark, table, monkeypatch):
    monkeypatch.setattr(compaction, "read_files", lambda *arguments: read_files(*arguments).limit(4))
    with pytest.raises(TableError, match="15 rows, but 4 were read"):
        compact(spark, table)
    assert offsets_in(table.read(spark)) == list(range(30))


def test_old_snapshots_go_with_the_files_that_only_they_need(spark, table, monkeypatch):
    compact(spark, table)
    table.set_properties(EXPIRE_ALL)
    later(monkeypatch, 0.001)
    swept = sweep(table)
    assert swept.snapshots == 4
    assert swept.files > 6
    assert offsets_in(table.read(spark)) == list(range(30))
    rest = {path for path in files_of(table) if path.endswith(".parquet")}
    assert rest == {local_path(file.file_path) for file in table.files()}
    assert not table.append(rows(spark, [0]), BatchMarker("q", 2)).is_new


def add_snapshots(spark: SparkSession, table: SparkTable, count: int) -> None:
    """Many small commits, of copies of one file: Spark need not write each of them."""
    first = table.stage(rows(spark, [1000]))
    for number in range(count):
        copy = first.paths[0].replace("part-", f"part-{number}-")
        shutil.copy(local_path(first.paths[0]) or "", local_path(copy) or "")
        table.commit(replace(first, attempt=str(number), paths=[copy]), BatchMarker("q", 10 + number))


def test_snapshots_stay_as_long_as_the_table_says(spark, table, monkeypatch):
    table.set_properties({MAX_AGE: str(48 * HOUR_MS), MIN_COUNT: "2"})
    add_snapshots(spark, table, 4)
    before = files_of(table)
    later(monkeypatch, 47)
    swept = sweep(table)
    assert (swept.snapshots, swept.files) == (0, 0)
    assert files_of(table) == before
    later(monkeypatch, 49)
    assert sweep(table).snapshots == 5
    assert len(table.latest().snapshots()) == 2


def test_a_table_without_garbage_collection_keeps_everything(spark, table, monkeypatch):
    table.set_properties({**EXPIRE_ALL, "gc.enabled": "false"})
    add_snapshots(spark, table, 4)
    table.stage(rows(spark, [99]))
    before = files_of(table)
    later(monkeypatch, 24 * 365)
    swept = sweep(table)
    assert (swept.snapshots, swept.files) == (0, 0)
    assert files_of(table) == before and len(table.latest().snapshots()) == 7


def test_upkeep_is_switched_off_in_parts(spark, table, monkeypatch):
    table.set_properties(EXPIRE_ALL)
    add_snapshots(spark, table, 2)
    strays = table.stage(rows(spark, [99])).paths
    later(monkeypatch, 24 * 365)
    before = files_of(table)
    maintain(spark, table, NO_UPKEEP)
    assert files_of(table) == before and len(table.latest().snapshots()) == 5
    maintain(spark, table, UpkeepPolicy(is_compacting=False, orphan_age_ms=None))
    assert len(table.latest().snapshots()) == 1
    assert {local_path(path) for path in strays} < files_of(table)
    maintain(spark, table, UpkeepPolicy(is_compacting=False, is_expiring=False))
    assert not {local_path(path) for path in strays} & files_of(table)


def test_branches_and_tags_keep_what_they_name(spark, table, monkeypatch):
    table.set_properties(EXPIRE_ALL)
    first, second, third = (snapshot.snapshot_id for snapshot in table.latest().snapshots())
    manage = table.latest().manage_snapshots()
    manage.create_tag(first, "day-1").create_branch(second, "audit", min_snapshots_to_keep=2).commit()
    add_snapshots(spark, table, 2)
    later(monkeypatch, 1)
    assert sweep(table).snapshots == 2, "the third, and the first of the two that were added"
    kept = {snapshot.snapshot_id for snapshot in table.latest().snapshots()}
    assert {first, second} < kept and third not in kept
    assert len(offsets_in(table.read(spark))) == 32


def test_a_property_that_is_no_number_is_reported(table):
    table.set_properties({MAX_AGE: "5 days"})
    with pytest.raises(TableError, match=rf"{MAX_AGE}='5 days', which is not an integer"):
        sweep(table)


def test_a_new_table_shows_how_long_its_snapshots_stay(table):
    properties = table.properties()
    assert (properties[MAX_AGE], properties[MIN_COUNT]) == (str(HOUR_MS), "20")
    table.ensure_properties({MAX_AGE: "1"})
    assert table.properties()[MAX_AGE] == "1"


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


def test_many_commits_leave_few_manifests_and_metadata_files(spark, table, monkeypatch):
    add_snapshots(spark, table, 25)
    latest = table.latest()
    assert len(latest.current_snapshot().manifests(latest.io)) < 25
    metadata = Path(local_path(latest.location()) or "", "metadata")
    assert len(list(metadata.glob("*.metadata.json"))) <= 21
    table.set_properties(EXPIRE_ALL)
    later(monkeypatch, 73)
    sweep(table)
    assert len(offsets_in(table.read(spark))) == 55
