"""`runnel log dump`: contents and problems of log files."""

import json
from pathlib import Path

import pytest

from runnel.testing import Broker


@pytest.fixture
def partition_dir(tmp_path: Path) -> Path:
    """A partition directory with three records in two batches."""
    with Broker(data_dir=tmp_path / "data") as broker, broker.client() as client:
        client.create_topic("orders")
        client.send("orders", b"tea", key=b"anna", headers=[("h", b"1")])
        client.send_all("orders", [(None, b"coffee"), (b"\xff", b"\xfe")])
    return tmp_path / "data" / "orders-0"


def test_batches_and_records(run, partition_dir):
    out = run.ok("log", "dump", str(partition_dir)).out
    assert "from offset 0" in out and "offsets 0-0" in out and "crc ok" in out and "tea" not in out
    out = run.ok("log", "dump", str(partition_dir), "--records").out
    assert "anna  tea  [h=1]" in out and "-  coffee" in out


def test_rows_as_json(run, partition_dir):
    rows = [json.loads(line) for line in run.ok("log", "dump", str(partition_dir), "-r", "--json").lines]
    records = [row for row in rows if row["row"] == "record"]
    assert [row["offset"] for row in records] == [0, 1, 2]
    assert (records[0]["key"], records[0]["headers"]) == ("anna", [{"name": "h", "value": "1"}])
    assert (records[2]["key_base64"], records[2]["value_base64"]) == ("/w==", "/g==")
    assert all(row["crc_is_valid"] for row in rows if row["row"] == "batch")


def test_check_a_data_directory(run, partition_dir):
    assert "no problems found" in run.ok("log", "dump", str(partition_dir.parent), "--check").out


def test_corruption_is_reported(run, partition_dir):
    [segment] = partition_dir.glob("*.log")
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    outcome = run("log", "dump", str(partition_dir), "--check")
    assert outcome.code == 1
    assert "PROBLEM" in outcome.out and "checksum" in outcome.out
    assert "problem" in outcome.err


def test_missing_path(run, tmp_path):
    outcome = run("log", "dump", str(tmp_path / "nowhere"))
    assert (outcome.code, outcome.out) == (1, "")
    assert "no such file or directory" in outcome.err


def test_path_without_log_files(run, tmp_path):
    (tmp_path / "notes.txt").write_text("")
    for path, expected in [
        (tmp_path, "is neither a data directory nor a partition directory"),
        (tmp_path / "notes.txt", "is neither a segment (.log), a producer snapshot"),
    ]:
        outcome = run("log", "dump", str(path), "--check")
        assert (outcome.code, outcome.out) == (1, "")
        assert expected in outcome.err


def test_empty_partition_has_no_problems(run, tmp_path):
    with Broker(data_dir=tmp_path / "data") as broker, broker.client() as client:
        client.create_topic("orders")
    assert "no problems found" in run.ok("log", "dump", str(tmp_path / "data" / "orders-0"), "--check").out


def test_topic_deleted_during_the_dump_is_no_problem(partition_dir):
    from runnel.disk.dump import ProblemRow, SegmentRow, dump
    from runnel.disk.os_files import OsFiles

    rows = dump(OsFiles(), str(partition_dir.parent))
    first = next(rows)
    partition_dir.rename(partition_dir.with_name("orders-0.gone"))
    seen = [first, *rows]
    assert [row for row in seen if isinstance(row, ProblemRow)] == []
    assert [Path(row.path).parent.name for row in seen if isinstance(row, SegmentRow)] == [
        "__cluster_metadata-0"
    ]
