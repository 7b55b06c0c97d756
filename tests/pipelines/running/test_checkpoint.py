"""A checkpoint records its query, and is locked by one process at a time."""

import json
import subprocess
import sys
from typing import Any

import pytest

from runnel.pipelines.checkpoint import IDENTITY_FILE, locked_checkpoint
from runnel.pipelines.errors import BadCheckpoint
from tools.processes import child

ARCHIVE: dict[str, Any] = {"pipeline": "archive", "sources": ["orders", "payments"], "sink": "table lake"}

HOLD = """
import sys
from typing import Any
from runnel.pipelines.checkpoint import locked_checkpoint
with locked_checkpoint(sys.argv[1], pipeline="archive", sources=["orders", "payments"], sink="table lake"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_its_owner_comes_back(tmp_path):
    folder = tmp_path / "new" / "checkpoint"
    for sources in (["orders", "payments"], ["payments", "orders"]):
        with locked_checkpoint(str(folder), **(ARCHIVE | {"sources": sources})) as place:
            assert place == str(folder)
    for scheme in ("file:", "file://"):
        with locked_checkpoint(f"{scheme}{folder}", **ARCHIVE) as place:
            assert place == str(folder)


@pytest.mark.parametrize("other", [{"pipeline": "other"}, {"sources": ["orders"]}, {"sink": "topic lake"}])
def test_another_query_is_refused(tmp_path, other):
    with locked_checkpoint(str(tmp_path), **ARCHIVE):
        pass
    with (
        pytest.raises(BadCheckpoint, match="belongs to the pipeline 'archive', which reads orders, payments"),
        locked_checkpoint(str(tmp_path), **(ARCHIVE | other)),
    ):
        pass
    with locked_checkpoint(str(tmp_path), **ARCHIVE):
        pass


def test_offsets_of_one_cluster_mean_nothing_in_another(tmp_path):
    def hold(cluster: str | None) -> None:
        with locked_checkpoint(str(tmp_path), **ARCHIVE, cluster=cluster):
            pass

    # Identities without a cluster id, and brokers that do not report one, are accepted.
    for cluster in (None, "east", None, "east"):
        hold(cluster)
    with pytest.raises(BadCheckpoint, match=r"of the cluster east, but this is the cluster west: use"):
        hold("west")
    hold("east")
    kept = json.loads((tmp_path / IDENTITY_FILE).read_text())
    assert kept.pop("cluster") == "east"
    (tmp_path / IDENTITY_FILE).write_text(json.dumps(kept))
    hold("west")
    with pytest.raises(BadCheckpoint, match="this is the cluster east"):
        hold("east")


def test_the_checkpoint_of_another_query_is_refused(tmp_path):
    (tmp_path / "offsets").mkdir()
    with (
        pytest.raises(BadCheckpoint, match="not one of Runnel's"),
        locked_checkpoint(str(tmp_path), **ARCHIVE),
    ):
        pass


@pytest.mark.parametrize("kept", ["", "[]", "{}", json.dumps({"pipeline": 1, "sources": 2, "sink": 3})])
def test_a_damaged_identity_is_not_guessed(tmp_path, kept):
    (tmp_path / IDENTITY_FILE).write_text(kept)
    with (
        pytest.raises(BadCheckpoint, match="is not a valid checkpoint identity"),
        locked_checkpoint(str(tmp_path), **ARCHIVE),
    ):
        pass


def test_no_folder_can_be_made(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(BadCheckpoint, match=r"cannot use the checkpoint .*file/x"),
        locked_checkpoint(str(tmp_path / "file" / "x"), **ARCHIVE),
    ):
        pass


def test_one_process_at_a_time_until_it_dies(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with child(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(BadCheckpoint, match=f"in use by process {holder.pid}"),
            locked_checkpoint(str(tmp_path), **ARCHIVE),
        ):
            pass
        holder.kill()
    with locked_checkpoint(str(tmp_path), **ARCHIVE):
        pass


def test_a_checkpoint_in_a_store_is_left_to_spark():
    with locked_checkpoint("s3a://bucket/checkpoint", **ARCHIVE) as place:
        assert place == "s3a://bucket/checkpoint"
