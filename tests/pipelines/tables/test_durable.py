"""Durability of files and of all their parent directories."""

from pathlib import Path

import pytest

from runnel.pipelines.tables import durable
from runnel.pipelines.tables.durable import DurableFileIO, make_durable
from runnel.pipelines.tables.staging import is_data_file


@pytest.fixture
def synced(monkeypatch) -> set[Path]:
    """Every path that was brought to the disk."""
    paths: set[Path] = set()
    sync = durable._sync

    def sync_and_note(path):
        sync(path)
        paths.add(Path(path))

    monkeypatch.setattr(durable, "_sync", sync_and_note)
    return paths


@pytest.mark.parametrize("inside", ["batch-1", "batch-1/a=1", "batch-1/a=1/b=2"])
def test_every_folder_from_the_warehouse_to_a_file_of_rows_is_synced(tmp_path, synced, inside):
    table = tmp_path / "warehouse" / "shop" / "orders"
    file = table / "data" / inside / "part-0.parquet"
    file.parent.mkdir(parents=True)
    file.touch()
    make_durable([f"file://{file}"], f"file://{table}")
    steps = [file, *file.parents]
    assert synced == set(steps[: steps.index(tmp_path)])


def test_every_folder_from_the_warehouse_to_a_file_of_metadata_is_synced(tmp_path, synced):
    file = tmp_path / "warehouse" / "shop" / "orders" / "metadata" / "00000.metadata.json"
    with DurableFileIO().new_output(f"file://{file}").create() as stream:
        stream.write(b"{}")
    steps = list(file.parents)
    assert synced == set(steps[: steps.index(tmp_path)])


def test_what_tasks_left_unfinished_is_no_file_of_rows():
    assert is_data_file("/__partition_day=2026-05-01/part-0.parquet")
    assert not is_data_file("/_temporary/0/_temporary/attempt_1/part-0.parquet")
    assert not is_data_file("/.part-0.parquet.crc")
    assert not is_data_file("/_SUCCESS")
